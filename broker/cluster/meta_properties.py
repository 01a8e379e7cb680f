"""`meta.properties`: which cluster and node a log directory belongs to, and the directory's own id.

A Java properties file, written as Kafka writes it: a comment line, a comment with the date, then `node.id`,
`directory.id`, `version` (1) and `cluster.id`. Version 0, from before KRaft, says `broker.id` and lacks the rest.

Crash policy: written aside, fsynced and renamed. It is the last file of formatting, so a directory that has it is
formatted and one that lacks it is not, whatever else lies there.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from pylogd.config.properties import format_properties, parse_properties
from pylogd.protocol import uuids
from pylogd.runtime.files import FileSystem

FILE_NAME = "meta.properties"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class MetaProperties(NamedTuple):
    """The contents; what an old file lacks is None."""

    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None
    version: int = 1

    def to_text(self, now_ms: int) -> str:
        when = time.gmtime(now_ms // 1000)
        date = f"{_DAYS[when.tm_wday]} {_MONTHS[when.tm_mon - 1]} {time.strftime('%d %H:%M:%S UTC %Y', when)}"
        values = {"node.id": str(self.node_id)}
        if self.directory_id is not None:
            values["directory.id"] = uuids.to_text(self.directory_id)
        values["version"] = "1"
        values["cluster.id"] = str(self.cluster_id)
        return f"#\n#{date}\n{format_properties(values)}"


def parse(text: str) -> MetaProperties:
    """Raises ValueError with the reason for a file that cannot be trusted."""
    values = {key: value for key, (value, _) in parse_properties(text).items()}
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise ValueError(f"unknown version {version}")
    node_key = "node.id" if version == "1" else "broker.id"
    node_text = values.get(node_key)
    if node_text is not None and not node_text.lstrip("-").isdigit():
        raise ValueError(f"{node_key} is not a number: {node_text}")
    if version == "1":
        for key in ("node.id", "cluster.id"):
            if key not in values:
                raise ValueError(f"{key} is missing")
    directory = values.get("directory.id")
    return MetaProperties(
        cluster_id=values.get("cluster.id"),
        node_id=int(node_text) if node_text is not None else None,
        directory_id=uuids.from_text(directory) if directory is not None else None,
        version=int(version),
    )


def read(files: FileSystem, directory: str) -> MetaProperties | None:
    """None when the directory is not formatted; OSError or ValueError when it cannot be read."""
    try:
        data = files.read_bytes(f"{directory}/{FILE_NAME}")
    except (FileNotFoundError, NotADirectoryError):
        if files.exists(directory) and not files.is_dir(directory):
            raise ValueError("is not a directory") from None
        return None
    return parse(data.decode("utf-8", "replace"))


def write(files: FileSystem, directory: str, meta: MetaProperties, now_ms: int) -> None:
    files.write_atomically(f"{directory}/{FILE_NAME}", meta.to_text(now_ms).encode())
