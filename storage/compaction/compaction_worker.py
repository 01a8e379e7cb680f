"""The compaction worker process: takes a job, offers one finished segment after another, waits for each swap.

Frames to the broker: ("group", CleanedGroup), answered with True (swapped, go on) or False (stop); then ("done", None),
or ("corrupt", text), ("failed", errno, text). Unfinished files are gone before the last frame is sent.
"""

from __future__ import annotations

from pylogd.protocol.compression import CompressionError
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.processes import Parent, serve
from pylogd.runtime.throttle import Throttle
from pylogd.storage.compaction.compaction import compact
from pylogd.storage.compaction.compaction_job import CompactionJob
from pylogd.storage.environment import StorageEnvironment
from pylogd.storage.segments.scan import CorruptLog


def handle(job: CompactionJob, parent: Parent) -> None:
    clock = Clock()
    environment = StorageEnvironment(FileSystem(), clock)
    groups = compact(environment, job, Throttle(job.io_bytes_per_second, clock))
    try:
        for group in groups:
            parent.send(("group", group))
            if not parent.receive():
                break
    except (CorruptLog, KafkaError, CompressionError) as error:
        parent.send(("corrupt", str(error)))
    except OSError as error:
        parent.send(("failed", error.errno, str(error)))
    else:
        parent.send(("done", None))


if __name__ == "__main__":
    serve(handle)
