"""A partition's log: how records come in, how they are read, and how its two ends are cut."""
