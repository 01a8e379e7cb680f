"""The segmented log: segments, indexes, producer state, recovery, retention, compaction."""
