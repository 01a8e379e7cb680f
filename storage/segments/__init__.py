"""The files of one segment: records, sparse indexes, aborted transactions."""
