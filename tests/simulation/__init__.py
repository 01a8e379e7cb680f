"""Whole clusters, coordinators and the Raft core on virtual time, from one seed: the simulators and their tests."""
