"""Which topics are compacted, from the copy of the cluster metadata that every node keeps beside its partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pylogd.metadata.record_batches import decode_batches
from pylogd.metadata.snapshot import SnapshotId
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.messages.metadata_records import ConfigRecord
from pylogd.runtime.files import FileSystem
from pylogd.storage.segments.scan import CorruptLog, scan_batches
from pylogd.storage.segments.segment import LOG_SUFFIX

_POLICY = "cleanup.policy"
_TOPIC = 2
#: The brokers create these, and compact them whatever their configuration says.


def compacted_topics(path: str) -> set[str]:
    """`path` is the partition directory of the metadata log; it need not exist."""
    found = set(INTERNAL_TOPICS)
    for record in _records(path):
        # Once compacted, the gaps stay when the policy changes.
        if (
            isinstance(record, ConfigRecord)
            and (record.resource_type, record.name) == (_TOPIC, _POLICY)
            and "compact" in (record.value or "")
        ):
            found.add(record.resource_name)
    return found


def _records(path: str) -> Iterator[object]:
    """Of the last snapshot and of the log. What the snapshot contains may come again."""
    if not os.path.isdir(path):
        return
    names = os.listdir(path)
    files = FileSystem()
    snapshots = sorted(found for found in map(SnapshotId.parse, names) if found is not None)
    if snapshots:
        for batch in decode_batches(files.read_bytes(f"{path}/{snapshots[-1].filename}")):
            yield from batch.records
    for name in sorted(name for name in names if name.endswith(LOG_SUFFIX)):
        file = files.file(f"{path}/{name}", readonly=True)
        try:
            for _, _, data in scan_batches(file, 0, file.size()):
                for batch in decode_batches(data):
                    yield from batch.records
        except (CorruptLog, ProtocolError):
            # Torn while the broker writes, or damaged: then the check of that log says so.
            return
        finally:
            file.close()
