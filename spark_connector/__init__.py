"""PySpark pipelines over the stock Kafka source and sink."""
