"""The isolation level of a reader, as requests spell it."""

from __future__ import annotations

from pylogd.protocol.errors import ErrorCode, KafkaError

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1


def reads_committed(level: int) -> bool:
    """Kafka has no error code of its own for a level that it does not know."""
    if level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown isolation level {level}")
    return level == _READ_COMMITTED
