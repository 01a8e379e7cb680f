"""Log lines: one line each, whatever a peer puts into them; and quiet when a peer is in a loop."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from pylogd.runtime import log_lines


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    yield io.StringIO()
    root.handlers[:], root.level = before[0], before[1]
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = before[2:]
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


def test_text_lines_have_time_level_logger_message_and_fields(stream: io.StringIO) -> None:
    log_lines.configure("INFO", "text", stream)
    logger = logging.getLogger("pylogd.broker.network.server")
    logger.info("opened %d", 3, extra=log_lines.fields(peer="10.0.0.1:5", reason="too long", empty=""))
    logger.debug("not shown")
    time, rest = stream.getvalue().split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == 'INFO  broker.network.server opened 3 peer=10.0.0.1:5 reason="too long" empty=""\n'


def test_a_peer_cannot_forge_a_line(stream: io.StringIO) -> None:
    log_lines.configure("INFO", "text", stream)
    logging.getLogger("pylogd.x").warning("client %s", "a\nFAKE\x1b[31m", extra=log_lines.fields(id='b\n"c'))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_json_lines(stream: io.StringIO) -> None:
    log_lines.configure("DEBUG", "json", stream)
    logging.getLogger("pylogd.storage").warning("disk\nfull", extra=log_lines.fields(free_bytes=5, path="/a"))
    entry = json.loads(stream.getvalue())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "WARN",
        "logger": "storage",
        "message": "disk\nfull",
        "free_bytes": 5,
        "path": "/a",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_comes_with_its_traceback(stream: io.StringIO, form: str) -> None:
    log_lines.configure("INFO", form, stream)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("pylogd").exception("failed")
    assert "ValueError: boom" in stream.getvalue()


def test_an_unknown_level_is_refused(stream: io.StringIO) -> None:
    with pytest.raises(KeyError):
        log_lines.configure("LOUD", "text", stream)


def test_repeated_lines_are_counted_instead_of_written() -> None:
    now = 0
    repeats = log_lines.Repeats(lambda: now, interval_ms=100, burst=2)
    assert [repeats.allow("a") for _ in range(5)] == [0, 0, None, None, None]
    assert repeats.allow("b") == 0
    now = 100
    assert repeats.allow("a") == 3
    assert [repeats.allow("a") for _ in range(2)] == [0, None]


def test_the_memory_of_repeats_is_bounded() -> None:
    repeats = log_lines.Repeats(lambda: 0, burst=1, kinds_max=2)
    assert [repeats.allow(kind) for kind in "abca"] == [0, 0, 0, 0]
    assert repeats.allow("c") is None


def test_levels_of_loggers_by_kafkas_names(stream: io.StringIO) -> None:
    log_lines.configure("INFO", "text", stream)
    child = logging.getLogger("pylogd.test.levels.child")
    assert log_lines.loggers()["pylogd.test.levels.child"] == "INFO"
    log_lines.set_level("pylogd.test.levels.child", "TRACE")
    assert log_lines.loggers()["pylogd.test.levels.child"] == "TRACE"
    assert child.isEnabledFor(5)
    log_lines.unset_level("pylogd.test.levels.child")
    log_lines.set_level("root", "FATAL")
    assert log_lines.loggers()["pylogd.test.levels.child"] == "FATAL"
    assert log_lines.loggers()["root"] == "FATAL"
