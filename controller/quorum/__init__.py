"""This node's part in the metadata quorum: its log on disk, its peers, and the loop around the Raft core."""
