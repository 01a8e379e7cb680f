"""Names in a log directory, and how segments leave it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylogd.runtime.files import FileSystem
from pylogd.storage.segments.segment import DELETED_SUFFIX, Segment

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState


def delete_segments(log: LogState, segments: Iterable[Segment], keep_snapshots: frozenset[int] = frozenset()) -> None:
    """Takes segments out of the log in the given order: renamed now, removed after `file.delete.delay.ms`, so that
    readers that hold them can finish. The producer snapshot at a segment's base goes with it."""
    paths: list[str] = []
    for segment in segments:
        log.segments.remove(segment)
        segment.change_suffix(DELETED_SUFFIX)
        segment.drop()
        paths += segment.paths()
        if segment.base_offset not in keep_snapshots:
            snapshot = log.producers.snapshots.mark_deleted(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
    if paths:
        files = log.environment.files
        log.environment.later(log.config.file_delete_delay_ms, lambda: _remove(files, log, paths))


def _remove(files: FileSystem, log: LogState, paths: list[str]) -> None:
    """Worker. The renames reach the disk first: a removal that survives a crash without them would be a hole. The paths
    are taken from the directory as it is called now, which may have been renamed for deletion."""
    directory = log.directory
    try:
        files.sync_dir(directory)
    except FileNotFoundError:
        return
    for path in paths:
        files.unlink(f"{directory}/{path.rpartition('/')[2]}")
