"""The metadata log, the cluster image replayed from it, and the decisions that append to it."""
