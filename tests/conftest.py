"""Fixtures of all tests: brokers as processes, the warm tool JVM, and the order in which folders run.

PYLOGD_TEST_TARGET=kafka points the behaviour tests (clients, tools, Spark) at a real Apache Kafka 4.3.1 instead of
pylogd: what passes there is Kafka's behaviour, and not only ours.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.broker import Pylogd
from support.daemon import Daemon
from support.jvm import ToolHost
from support.kafka import ApacheKafka
from support.target import TARGET, TARGETS

# How long an example takes says only how busy the machine is.
settings.register_profile("pylogd", settings.default, deadline=None)
settings.load_profile("pylogd")

# Cheap first: a broken codec should not be found by a Spark job. Of the dear ones, those that must stay together in one
# worker come first, so that the other worker is busy to the end.
ORDER = [
    "test_tree.py", "protocol", "runtime", "config", "metadata", "rpc", "storage", "replication", "controller",
    "coordinators", "broker", "audit", "cli",
]  # fmt: skip
LAST = ["spark", "jvm", "cluster", "clients", "crash", "fuzz"]
# What only one worker may have: all tests that ask for it run there, one after another.
ONE_FOR_ALL = ["spark", "cluster"]


# Before xdist's own hook, which reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(root).parts[0]
        if folder in LAST:
            return len(ORDER) + 1 + LAST.index(folder)
        return ORDER.index(folder) if folder in ORDER else len(ORDER)

    items.sort(key=rank)
    only_ours = pytest.mark.skip(reason="is about pylogd itself, not about Kafka's behaviour")
    for item in items:
        if item.path.relative_to(root).parts[0] in LAST:
            shared = next((name for name in ONE_FOR_ALL if name in getattr(item, "fixturenames", ())), None)
            item.add_marker(pytest.mark.xdist_group(shared or item.path.relative_to(root).as_posix()))
        if TARGET != "pylogd" and item.get_closest_marker("pylogd_only"):
            item.add_marker(only_ours)


@pytest.fixture(scope="session")
def tools() -> Iterator[ToolHost]:
    """Kafka's command-line tools in one warm JVM."""
    host = ToolHost()
    yield host
    host.stop()


# Limits that every behaviour test may count on: records up to 10 MB, topics only on demand.
SHARED_PROPERTIES = {
    "message.max.bytes": "12000000",
    "replica.fetch.max.bytes": "12000000",
    "auto.create.topics.enable": "true",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One broker for all tests that leave it as they found it."""
    daemon = TARGETS[TARGET](tmp_path_factory.mktemp("broker"), SHARED_PROPERTIES)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts brokers that belong to one test, with the properties it wants."""
    yield from _factory(tmp_path, TARGETS[TARGET])


@pytest.fixture
def new_pylogd(tmp_path: Path) -> Iterator[Callable[..., Pylogd]]:
    yield from _factory(tmp_path, Pylogd)


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[Callable[..., ApacheKafka]]:
    """Starts real Apache Kafka nodes; `data` opens a directory that another broker wrote."""
    yield from _factory(tmp_path, ApacheKafka)


def _factory(tmp_path: Path, kind: type[Daemon]) -> Iterator[Callable[..., Daemon]]:
    started: list[Daemon] = []

    def start(properties: dict[str, str] | None = None, *, data: Path | None = None, node_id: int = 1) -> Daemon:
        daemon = kind(tmp_path / f"{kind.name}-{len(started)}", properties, node_id)
        if data is not None:
            daemon.data = data
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        if daemon.running:
            daemon.stop()
        else:
            daemon.kill()
            daemon.assert_log_clean()


_numbers = itertools.count(1)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses."""
    stem = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return f"{stem}.{os.getpid()}.{next(_numbers)}"
