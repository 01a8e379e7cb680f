"""What a Spark user has to put right before a job can start, and what the JVM's exceptions are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError


class SetupError(Exception):
    """Something is missing or does not fit together; the text says what, and what to do."""


def innermost(error: Py4JJavaError) -> Any:
    """The exception inside the exceptions, which say only that something failed."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause
