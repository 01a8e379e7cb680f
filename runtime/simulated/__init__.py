"""The twins of clock, loop, network, files and workers that a simulation runs on, from one seed and in virtual time."""
