"""The one exception of configuration, and the guess of what was meant."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(ValueError):
    """A key or a value that cannot be accepted; says which, and what was expected."""

    def __init__(self, name: str, value: object, expectation: str, message: str | None = None) -> None:
        self.name = name
        self.value = value
        self.expectation = expectation
        super().__init__(message or f"Invalid value {value} for configuration {name}: {expectation}")


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known name nearest to an unknown one."""
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return near[0] if near else None
