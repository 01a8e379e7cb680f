"""The same requests to two brokers, and their answers made comparable: the differential half of the oracle tests.

A scenario asks through a `Talker`, at every version of an API; what comes back is kept as plain values, without what
must differ between two brokers (ports, ids, times, directories, the wording of messages).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pylogd.protocol import batch
from pylogd.protocol.api import APIS, Api
from pylogd.protocol.schema import Message, Struct, fields
from pylogd.protocol.uuids import ZERO

from support.daemon import Daemon
from support.jvm import java
from support.kafka import ApacheKafka
from support.rawclient import Client, Closed
from support.target import TARGET, TARGETS
from support.wait import eventually

BY_NAME: dict[str, Api] = {api.name: api for api in APIS.values()}
DIFFERENT = {
    "broker_epoch",
    "cluster_id",
    "documentation",
    "error_message",
    "batch_index_error_message",
    "log_append_time_ms",
    "log_dir",
    "message",
    "port",
    "last_timestamp",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "replica_directory_id",
    "session_id",
    "throttle_time_ms",
    "total_bytes",
    "usable_bytes",
}


def versions(name: str) -> range:
    api = BY_NAME[name]
    return range(api.first, api.last + (0 if api.unstable else 1))


def build(cls: type[Struct], version: int, values: dict[str, Any]) -> Any:
    """A struct from nested dictionaries; fields that the version does not have are left out."""
    made = cls()
    known = {field.name: field for field in fields(cls)}
    for name, value in values.items():
        field = known[name]
        if field.present(version):
            if field.struct is not None and value is not None:
                inner = field.struct
                value = [build(inner, version, v) for v in value] if field.array else build(inner, version, value)
            setattr(made, name, value)
    return made


class Talker:
    """Asks one broker and writes down the answers."""

    def __init__(self, broker: Daemon) -> None:
        self.broker = broker
        self.client = Client(broker.port)
        self.transcript: list[tuple[str, int, Any]] = []
        #: Topics by id.
        self.names: dict[bytes, str] = {}

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """The decoded answer, after noting it."""
        answer = self.ask_quietly(name, version, **values)
        self.note(name, version, "closed" if answer is None else self.plain(answer, version))
        return answer

    def ask_quietly(self, name: str, version: int, **values: Any) -> Any:
        request: Message = build(BY_NAME[name].request, version, values)
        try:
            return self.client.ask(request, version)
        except (Closed, ConnectionError):
            self.client = Client(self.broker.port)
            return None

    def note(self, label: str, version: int, value: Any) -> None:
        self.transcript.append((label, version, value))

    def topic_id(self, topic: str) -> bytes:
        answer = self.ask_quietly(
            "Metadata", 12, topics=[{"name": topic, "topic_id": ZERO}], allow_auto_topic_creation=False
        )
        found: bytes = answer.topics[0].topic_id
        if found != ZERO:
            self.names[found] = topic
        return found

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> bytes:
        """A topic, and its id once this broker leads all of it."""
        rows = [{"name": name, "value": value} for name, value in (configs or {}).items()]
        new = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
        self.ask_quietly("CreateTopics", 7, topics=[new], timeout_ms=10_000)
        eventually(lambda: self.topic_id(topic) != ZERO)
        eventually(lambda: self.leads(topic, partitions))
        return self.topic_id(topic)

    def leads(self, topic: str, partitions: int) -> bool:
        wanted = [{"partition_index": n, "timestamp": -1} for n in range(partitions)]
        answer = self.ask_quietly("ListOffsets", 5, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
        return all(p.error_code == 0 for p in answer.topics[0].partitions)

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                f.name: self.plain(getattr(value, f.name), version, f.name)
                for f in fields(type(value))
                if f.present(version) and f.name not in DIFFERENT
            }
        if isinstance(value, list):
            items = [self.plain(item, version, field) for item in value]
            return sorted(_merged(items), key=_order)
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            if field == "records":
                return comparable_records(data)
            if len(data) == 16:
                return self.names.get(data, "no topic" if data == ZERO else "a topic")
            return data
        return value


def _merged(items: list[Any]) -> list[Any]:
    """Topics that come in several pieces as one: in which order partitions are read is a broker's business."""
    whole: dict[Any, Any] = {}
    for number, item in enumerate(items):
        name = (item.get("topic"), item.get("topic_id")) if isinstance(item, dict) and "partitions" in item else number
        if name in whole and name != (None, None):
            whole[name]["partitions"] = sorted(whole[name]["partitions"] + item["partitions"], key=_order)
        else:
            whole[number if name == (None, None) else name] = item
    return list(whole.values())


def _order(item: Any) -> str:
    """The order in which items are compared: by what they are about."""
    return repr({key: value for key, value in item.items() if key != "error_code"} if isinstance(item, dict) else item)


def comparable_records(data: bytes) -> list[str]:
    """Whole batches, by what they hold without what the clock of a broker decides. Kafka may add a torn one at the end;
    we send whole ones where we know where they end."""
    made = bytearray(data)
    rows = []
    for position, header in batch.iter_headers(made):
        end = position + header.length
        view = memoryview(made)[position:end]
        if header.timestamp_type == batch.LOG_APPEND_TIME:
            batch.set_max_timestamp(view, batch.LOG_APPEND_TIME, 0)
        crc = batch.compute_crc(view)
        place = f"{header.base_offset} to {header.last_offset} of epoch {header.partition_leader_epoch}"
        rows.append(f"{place}, checksum {crc:x}")
    return rows


@contextlib.contextmanager
def beside_kafka(folder: Path, settings: dict[str, str]) -> Iterator[tuple[Daemon, Daemon]]:
    """The broker under test and an Apache Kafka with the same settings."""
    java()
    ours, theirs = TARGETS[TARGET](folder / "ours", settings), ApacheKafka(folder / "kafka", settings)
    with contextlib.ExitStack() as stack:
        for daemon in (ours, theirs):
            daemon.start()
            stack.callback(daemon.stop)
        yield ours, theirs


@contextlib.contextmanager
def talking(*brokers: Daemon) -> Iterator[list[Talker]]:
    talkers = [Talker(broker) for broker in brokers]
    try:
        yield talkers
    finally:
        for talker in talkers:
            talker.client.socket.close()


def differences(ours: Talker, theirs: Talker) -> list[str]:
    """What the two transcripts disagree on, one line each."""
    found = []
    assert [entry[:2] for entry in ours.transcript] == [entry[:2] for entry in theirs.transcript]
    for (label, version, mine), (_, _, wanted) in zip(ours.transcript, theirs.transcript, strict=True):
        found += [f"{label} v{version}{path}: {a!r}, Kafka {b!r}" for path, a, b in _walk(mine, wanted, "")]
    return found


def _walk(mine: Any, wanted: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(mine, dict) and isinstance(wanted, dict) and mine.keys() == wanted.keys():
        for key in mine:
            yield from _walk(mine[key], wanted[key], f"{path}.{key}")
    elif isinstance(mine, list) and isinstance(wanted, list) and len(mine) == len(wanted):
        for number, (a, b) in enumerate(zip(mine, wanted, strict=True)):
            yield from _walk(a, b, f"{path}[{number}]")
    elif isinstance(mine, list) and isinstance(wanted, list):
        yield path, [m for m in mine if m not in wanted], [w for w in wanted if w not in mine]
    elif mine != wanted:
        yield path, mine, wanted
