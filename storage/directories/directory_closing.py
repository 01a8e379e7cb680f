"""The end of an orderly stop of one log directory: its logs are flushed and closed, and a marker says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.storage.directories.directory import SYNC_TOGETHER_MIN

if TYPE_CHECKING:
    from pylogd.runtime.files import FileSystem
    from pylogd.storage.directories.directory import LogDirectory
    from pylogd.storage.directories.offset_checkpoints import Checkpoints
    from pylogd.storage.log.log import Log


def close_logs(
    files: FileSystem, checkpoints: Checkpoints, directory: LogDirectory, logs: list[Log], broker_epoch: int
) -> None:
    """Worker; the loop no longer touches the logs. The marker comes last: it vouches for everything before."""
    changed = [log for log in logs if log.dirty]
    together = len(changed) > SYNC_TOGETHER_MIN
    for log in logs:
        if log.log_end_offset > log.recovery_point and not together:
            plan = log.flush_plan()
            plan.run()
            log.recovery_point = plan.end
        log.close(durable=not together)
    if together:
        files.sync_file_system(directory.path)
        for log in changed:
            log.recovery_point = log.log_end_offset
    checkpoints.write_all(directory)
    directory.write_clean_shutdown(broker_epoch)
