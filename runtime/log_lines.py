"""Log lines on stderr: one line each, as key=value text for people or as JSON for machines.

Modules use the standard library (`logging.getLogger(__name__)`); this file decides how lines look, which are written,
and gives two helpers: `fields(...)` adds key=value pairs to a line, `Repeats` keeps a noisy peer from filling the log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

TRACE: Final = 5
#: Kafka's names of levels, which clients use to change them, and the standard library's numbers.
LEVELS: Final[dict[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}
ROOT: Final = "root"


def fields(**values: Any) -> Mapping[str, Any]:
    """`logger.info("opened", extra=fields(partition=3))` ends in ` partition=3`."""
    return {"fields": values}


def level_number(name: str) -> int:
    """Also understands WARNING and CRITICAL, the standard library's spelling."""
    upper = name.upper()
    return LEVELS[{"WARNING": "WARN", "CRITICAL": "FATAL"}.get(upper, upper)]


def level_name(number: int) -> str:
    """Kafka's name of a level, rounded down to a known one."""
    for known in sorted(_NAMES, reverse=True):
        if number >= known:
            return _NAMES[known]
    return "TRACE"


def configure(level: str = "INFO", form: str = "text", stream: TextIO | None = None) -> None:
    """Send everything at `level` and above to `stream` (stderr), in the form `text` or `json`."""
    # Lines do not show these; looking them up for each one costs.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level_number(level))
    # asyncio's debug lines are about the loop, not about the broker.
    logging.getLogger("asyncio").setLevel(max(root.level, logging.WARNING))


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO broker.server message key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {level_name(record.levelno):5} {_short(record.name)} {_one_line(record.getMessage())}"
        values = getattr(record, "fields", None)
        if values:
            line += "".join(f" {key}={_text(value)}" for key, value in values.items())
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        entry = {
            "time": _time(record),
            "level": level_name(record.levelno),
            "logger": _short(record.name),
            "message": record.getMessage(),
        }
        for key, value in (getattr(record, "fields", None) or {}).items():
            entry.setdefault(key, value)
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    seconds = int(record.created)
    milliseconds = int((record.created - seconds) * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"


def _short(name: str) -> str:
    return name.removeprefix("pylogd.")


def _one_line(text: str) -> str:
    """A peer's bytes may end up in a message; they must not start a line of their own."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _text(value: Any) -> str:
    text = _one_line(str(value))
    if not text or " " in text or '"' in text or "=" in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return text


class Repeats:
    """Lets the first lines of a kind through and counts the rest, so that a peer in a loop costs one line per interval.

        if (suppressed := repeats.allow(peer_address)) is not None:
            logger.warning("malformed request", extra=fields(peer=..., suppressed=suppressed))

    Bounded: the kind that has been quiet the longest is forgotten when there are too many.
    """

    __slots__ = ("_burst", "_interval_ms", "_kinds_max", "_now_ms", "_seen")

    def __init__(
        self, now_ms: Callable[[], int], interval_ms: int = 10_000, burst: int = 3, kinds_max: int = 1024
    ) -> None:
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._burst = burst
        self._kinds_max = kinds_max
        self._seen: dict[Any, list[int]] = {}  # kind -> [start of the interval, lines written, lines suppressed]

    def allow(self, kind: Any) -> int | None:
        """None: stay silent. Otherwise write the line; the number tells how many of its kind were left out before."""
        now = self._now_ms()
        state = self._seen.pop(kind, None)
        if state is None:
            if len(self._seen) >= self._kinds_max:
                del self._seen[next(iter(self._seen))]
            self._seen[kind] = [now, 1, 0]
            return 0
        self._seen[kind] = state  # now the most recent one
        if now - state[0] >= self._interval_ms:
            suppressed = state[2]
            state[:] = [now, 1, 0]
            return suppressed
        if state[1] < self._burst:
            state[1] += 1
            return 0
        state[2] += 1
        return None


# Levels of single loggers, as the BROKER_LOGGER resource of DescribeConfigs and IncrementalAlterConfigs shows them.


def loggers() -> dict[str, str]:
    """Effective level by logger name: `root`, every logger, and every folder of ours that has some."""
    root = logging.getLogger()
    found = {ROOT: level_name(root.getEffectiveLevel())}
    for name, logger in sorted(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) or name.startswith("pylogd"):
            found[name] = level_name(logging.getLogger(name).getEffectiveLevel())
    return found


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Back to the level of the logger above."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
