"""A node of the cluster: it serves clients, hosts replicas and coordinators, and follows the cluster's metadata."""
