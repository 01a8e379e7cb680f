"""Opening a log: what lies on disk becomes segments, and what may not have reached the disk is checked."""
