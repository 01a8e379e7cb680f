"""Replicas of this broker: their roles, their in-sync replicas, their directories."""
