"""Kafka's text checkpoint files: small tables that are replaced as a whole.

    version of the format (0)
    number of entries
    one entry per line, fields separated by blanks

Offsets files (`recovery-point-offset-checkpoint` and its siblings) hold `topic partition offset`,
`leader-epoch-checkpoint` holds `epoch start-offset`. A file is written aside, synced and renamed over the old one, so a
crash leaves either table whole. An empty or missing file is an empty table: Kafka creates them empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pylogd.runtime.files import FileSystem

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

_VERSION = 0

TopicPartition = tuple[str, int]


class CheckpointError(Exception):
    """The file is not a checkpoint of the expected form."""


def encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([str(_VERSION), str(len(entries)), *entries, ""]).encode()


def decode(data: bytes, fields: int, path: str = "") -> list[list[str]]:
    """The entries as lists of exactly `fields` words."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: not text") from None
    if len(lines) < 2:
        if lines and lines[0] != str(_VERSION):
            raise CheckpointError(f"{path}: unrecognised version {lines[0]!r}, expected {_VERSION}")
        return []
    if lines[0] != str(_VERSION):
        raise CheckpointError(f"{path}: unrecognised version {lines[0]!r}, expected {_VERSION}")
    entries = [line.split() for line in lines[2:]]
    for line, words in zip(lines[2:], entries):
        if len(words) != fields:
            raise CheckpointError(f"{path}: malformed line {line!r}")
    if str(len(entries)) != lines[1].strip():
        raise CheckpointError(f"{path}: expected {lines[1]} entries, found {len(entries)}")
    return entries


def read_table(files: FileSystem, path: str, fields: int) -> list[list[str]]:
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return []
    return decode(data, fields, path)


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_table(files, path, fields=3)}
    except ValueError:
        raise CheckpointError(f"{path}: a partition or offset is not a number") from None


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int], durable: bool = True) -> None:
    """Replaces the table. fsyncs when durable: call it from a worker."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    files.write_atomically(path, encode(lines), durable)
