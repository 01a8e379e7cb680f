"""`partition.metadata`: which topic a partition directory belongs to.

Text: `version: 0` and `topic_id: <url-safe base64>`, written aside and renamed. It lets a broker tell the partition of
a topic that was deleted and created again from the one it still has on disk.
"""

from __future__ import annotations

from pylogd.protocol import uuids
from pylogd.runtime.files import FileSystem

FILE_NAME = "partition.metadata"


class MalformedMetadata(Exception):
    """The file is not what it should be; the partition cannot be matched with a topic."""


def write(files: FileSystem, directory: str, topic_id: bytes, durable: bool = True) -> None:
    """Without `durable` the caller syncs the file system, and a crash before that may leave an empty file."""
    text = f"version: 0\ntopic_id: {uuids.to_text(topic_id)}"
    files.write_atomically(f"{directory}/{FILE_NAME}", text.encode(), durable)


def read(files: FileSystem, directory: str) -> bytes | None:
    """The topic id, or None when there is no such file or a crash left it without its bytes."""
    path = f"{directory}/{FILE_NAME}"
    try:
        text = files.read_bytes(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    if not text.strip("\0"):
        return None
    values = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            values[name.strip()] = value.strip()
    try:
        if int(values["version"]) < 0:
            raise ValueError(values["version"])
        topic_id = uuids.from_text(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise MalformedMetadata(f"{path}: expected version and topic_id, found {text!r}") from error
    if len(topic_id) != 16 or topic_id == uuids.ZERO:
        raise MalformedMetadata(f"{path}: {values['topic_id']} is no topic id")
    return topic_id
