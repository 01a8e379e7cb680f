"""Subscriptions by pattern. The syntax is RE2's, whose matching time does not explode whatever the pattern; a topic
must match as a whole. Internal topics match like any other, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pylogd.protocol.errors import ErrorCode, KafkaError

#: Memory a compiled pattern may take.
_BYTES_MAX = 8 << 20


def compile_regex(regex: str) -> Any:
    """KafkaError when it is not one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _BYTES_MAX
    try:
        return re2.compile(regex, options=options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else problem
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from None


def matching(regex: str, topics: Iterable[str]) -> frozenset[str]:
    try:
        fullmatch = compile_regex(regex).fullmatch
    except KafkaError:
        return frozenset()  # checked when the member came with it; a record may hold one that another library took
    return frozenset(topic for topic in topics if fullmatch(topic))
