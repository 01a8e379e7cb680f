"""A connection to another node of the cluster, as its client, and pools of them."""
