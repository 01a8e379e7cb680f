"""The classic group protocol, in which members join, wait for each other and a leader among them assigns."""
