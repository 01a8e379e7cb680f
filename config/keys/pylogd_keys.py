"""Broker configs that Kafka does not have. Columns: see definition.py."""

KEYS = """
# pylogd
pylogd.record.validation string header {header,full} medium cluster-wide
    How much of a produced batch is checked: its header and checksum, or every record inside as well.
pylogd.disk.free.floor.bytes long 1073741824 0.. medium
    Warn when a log directory's disk has less free space than this.
pylogd.inflight.bytes.max long 268435456 1048576.. medium
    Bytes of requests and pending replies of all clients together before connections stop being read.
pylogd.logging.level string INFO i{DEBUG,INFO,WARN,WARNING,ERROR} medium
    Least severe log lines that are written; --log-level overrides it.
pylogd.logging.format string text {text,json} medium
    Form of log lines: key=value text or one JSON object per line.
"""
