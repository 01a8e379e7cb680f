"""Helpers of the tests: processes of ours and of Kafka's, started on free ports and stopped by their id."""
