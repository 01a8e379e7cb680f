"""Compaction: which log is dirty, who cleans it, and what stays."""
