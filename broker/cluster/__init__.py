"""This node as part of its cluster: formatting, joining, registration, the controller, the published metadata."""
