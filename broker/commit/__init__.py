"""OffsetCommit that repeats itself."""
