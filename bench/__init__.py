"""Benchmarks: Apache Kafka and pylogd side by side on the same machine, the same configuration and the same work.

Run from the checkout: `python -m bench [--only bulk,latency] [--quick]`. Each file in `rows/` is one group of rows of
the table; `load/` holds the clients, which run in processes of their own; `RESULTS.md` keeps the figures of the last
full run.
"""
