"""Opening a log: what is on disk becomes segments, and after an unclean stop their tail is checked byte by byte.

Steps, as Kafka's loader has them:
1. Leftovers. `.deleted` files go. A `.cleaned` file means a swap that was not decided: it goes, and every `.swap`
   file from its offset on with it. Other `.swap` files were decided: the segments they cover go, and they take their
   names.
2. Segments. An index without a log goes; a log without an index is scanned and gets one.
3. Recovery, unless the last stop was clean: every segment from the recovery point on is scanned (`recovery`).
4. Offsets. A log that ends below its start was tampered with and starts empty at its start. Leader epochs are cut to
   the log's range, and the producers' state is read from the newest snapshot and replayed from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.storage import partition_metadata
from pylogd.storage.checkpoint_file import LEADER_EPOCHS, CheckpointError
from pylogd.storage.log.leader_epochs import EpochCache
from pylogd.storage.log.log import Log
from pylogd.storage.log_config import LogConfig
from pylogd.storage.producers.producer_state import EXPIRATION_MS, ProducerStates
from pylogd.storage.recovery.segment_recovery import Recovery
from pylogd.storage.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
)
from pylogd.storage.segments.segment_list import Segments

if TYPE_CHECKING:
    from pylogd.storage.environment import StorageEnvironment
    from pylogd.storage.log.log_environment import LogEnvironment

logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
#: A snapshot of the metadata log waits under this name for whoever still reads it; it is not ours to remove.
_RAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"

#: name -> (size, modified ms)
Listing = dict[str, tuple[int, int]]


class InconsistentTopicId(Exception):
    """The directory belongs to another topic of the same name."""


def open_log(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    topic_id: bytes | None = None,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    clean: bool = False,
    producer_expiration_ms: int = EXPIRATION_MS,
    progress: Callable[[int], None] | None = None,
    sync: bool = True,
) -> Log:
    """The log in `directory`, created if need be. Offsets are those of the checkpoint files; `clean` says that the last
    stop was orderly. `sync` makes what was recovered durable; without it the recovery point stays where it was until
    the next flush. `progress` is told how many segments remain to be scanned. OSError when the disk fails. May run in
    a worker, because nobody else has the log yet."""
    if not environment.files.is_dir(directory):
        return _create(
            environment, directory, topic, partition, config, topic_id, log_start_offset, producer_expiration_ms
        )
    found = _settled(environment, directory, config)
    topic_id = _match_topic_id(environment, directory, found, topic_id)
    segments, unindexed = _load_segments(environment, directory, found, config)
    name = f"{topic}-{partition}"
    epochs = _load_epochs(environment, directory, found, name)
    producers = ProducerStates(environment.files, directory, _snapshot_offsets(found), producer_expiration_ms)
    recovery = Recovery(environment, name, segments, epochs, producers, config, log_start_offset)
    clean = clean and _is_whole(recovery, segments, unindexed, name)
    if not clean:
        recovery.recover_from(min([recovery_point, *(segment.base_offset for segment in unindexed)]), progress, sync)
    end_offset = _end_offset(recovery, segments, epochs, producers, name, log_start_offset)
    if not segments:
        segments.add(_new_segment(environment, directory, log_start_offset, config))
    log_start_offset = max(log_start_offset, segments.first.base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    recovery.bring_producers_to(end_offset, log_start_offset, clean)
    segments.last.file.close()
    log = Log(
        environment,
        directory,
        topic,
        partition,
        config,
        segments,
        epochs,
        producers,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        recovery_point=end_offset if clean or sync else min(recovery_point, end_offset),
        topic_id=topic_id,
    )
    log.entry_synced = clean
    if not sync:
        for segment in recovery.rebuilt:
            log.note_closed(segment)
    return log


def _create(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    topic_id: bytes | None,
    log_start_offset: int,
    producer_expiration_ms: int,
) -> Log:
    files = environment.files
    files.mkdirs(directory)
    segments = Segments()
    segments.add(_new_segment(environment, directory, log_start_offset, config))
    producers = ProducerStates(files, directory, [], producer_expiration_ms)
    producers.map_end_offset = log_start_offset
    log = Log(
        environment,
        directory,
        topic,
        partition,
        config,
        segments,
        EpochCache(files, f"{directory}/{LEADER_EPOCHS}"),
        producers,
        log_start_offset=log_start_offset,
        log_end_offset=log_start_offset,
        recovery_point=log_start_offset,
        topic_id=topic_id,
    )
    log.metadata_written = topic_id is None
    return log


def _new_segment(environment: StorageEnvironment, directory: str, base_offset: int, config: LogConfig) -> Segment:
    segment = Segment(environment, directory, base_offset, config)
    segment.create(config.segment_bytes if config.preallocate else 0)
    segment.file.close()
    return segment


def _list(environment: StorageEnvironment, directory: str) -> Listing:
    return {name: (size, modified) for name, is_dir, size, modified in environment.files.scan(directory) if not is_dir}


def _match_topic_id(
    environment: StorageEnvironment, directory: str, found: Listing, topic_id: bytes | None
) -> bytes | None:
    """The id on disk decides; a missing file is written by whoever knows the id."""
    stored = None
    if partition_metadata.FILE_NAME in found:
        stored = partition_metadata.read(environment.files, directory)
    if stored is None:
        if topic_id is not None:
            partition_metadata.write(environment.files, directory, topic_id)
        return topic_id
    if topic_id is not None and topic_id != stored:
        raise InconsistentTopicId(f"{directory} belongs to topic id {stored.hex()}, not to {topic_id.hex()}")
    return stored


def _load_segments(
    environment: StorageEnvironment, directory: str, found: Listing, config: LogConfig
) -> tuple[Segments, list[Segment]]:
    """The segments, and those among them that have records but no usable offset index."""
    segments = Segments()
    unindexed: list[Segment] = []
    for name, (size, modified) in found.items():
        stem, dot, kind = name.partition(".")
        if not stem.isdigit() or len(stem) != 20:
            continue
        suffix = dot + kind
        if suffix in _INDEX_SUFFIXES and stem + LOG_SUFFIX not in found:
            logger.warning("%s/%s: an index without its log is removed", directory, name)
            environment.files.unlink(f"{directory}/{name}")
        elif suffix == LOG_SUFFIX:
            offset_index, _ = found.get(stem + INDEX_SUFFIX, (-1, 0))
            time_index, _ = found.get(stem + TIME_INDEX_SUFFIX, (0, 0))
            segment = Segment(
                environment,
                directory,
                int(stem),
                config,
                new=False,
                size=size,
                modified_ms=modified,
                index_sizes=(max(offset_index, 0), time_index),
            )
            segments.add(segment)
            if size and (offset_index < 0 or offset_index % 8 or time_index % 12):
                unindexed.append(segment)
    return segments, unindexed


def _load_epochs(environment: StorageEnvironment, directory: str, found: Listing, name: str) -> EpochCache:
    epochs = EpochCache(environment.files, f"{directory}/{LEADER_EPOCHS}")
    if LEADER_EPOCHS in found:
        try:
            epochs.load()
        except CheckpointError as error:
            logger.warning("%s: %s; the table starts empty", name, error)
    return epochs


def _snapshot_offsets(found: Listing) -> list[int]:
    return [
        int(name[: -len(SNAPSHOT_SUFFIX)])
        for name in found
        if name.endswith(SNAPSHOT_SUFFIX) and name[: -len(SNAPSHOT_SUFFIX)].isdigit()
    ]


def _is_whole(recovery: Recovery, segments: Segments, unindexed: list[Segment], name: str) -> bool:
    """After a clean stop: is the log what such a stop leaves? Missing indexes are made on the way."""
    recovery.rebuild_indexes(unindexed)
    if segments and not recovery.ends_whole(segments.last):
        logger.error("%s: the last segment is corrupt although the last stop was clean", name)
        return False
    return True


def _end_offset(
    recovery: Recovery,
    segments: Segments,
    epochs: EpochCache,
    producers: ProducerStates,
    name: str,
    log_start_offset: int,
) -> int:
    """Where the log ends. Without segments that should be there it starts empty at its start."""
    end_offset = segments.last.next_offset() if segments else log_start_offset
    if end_offset >= log_start_offset:
        return end_offset
    logger.warning(
        "%s: the log ends at %d below its start %d; all segments are dropped", name, end_offset, log_start_offset
    )
    recovery.drop(segments.snapshot())
    epochs.clear()
    producers.truncate_fully_and_start_at(log_start_offset)
    return log_start_offset


def _settled(environment: StorageEnvironment, directory: str, config: LogConfig) -> Listing:
    """The directory without leftovers."""
    found = _list(environment, directory)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in found):
        _settle_leftovers(environment, directory, found, config)
        found = _list(environment, directory)
    return found


def _settle_leftovers(environment: StorageEnvironment, directory: str, found: Listing, config: LogConfig) -> None:
    files = environment.files
    cleaned_from: int | None = None
    swaps: list[str] = []
    for name in found:
        if name.endswith(DELETED_SUFFIX) and not name.endswith(_RAFT_SNAPSHOT_DELETED):
            files.unlink(f"{directory}/{name}")
        elif name.endswith(CLEANED_SUFFIX):
            offset = int(name[:20])
            cleaned_from = offset if cleaned_from is None else min(cleaned_from, offset)
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(name)
    if cleaned_from is not None:
        # Swap files go before the cleaned ones that condemn them: a crash in between must find the same evidence.
        for name in swaps:
            if int(name[:20]) >= cleaned_from:
                files.unlink(f"{directory}/{name}")
        swaps = [name for name in swaps if int(name[:20]) < cleaned_from]
        for name in found:
            if name.endswith(CLEANED_SUFFIX):
                files.unlink(f"{directory}/{name}")
    if not swaps:
        return
    covered_from, covered_to = None, 0
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = int(name[:20])
            segment = Segment(environment, directory, base, config, new=False, size=found[name][0], suffix=SWAP_SUFFIX)
            covered_from = base if covered_from is None else min(covered_from, base)
            covered_to = max(covered_to, segment.next_offset())
            segment.drop()
    if covered_from is not None:
        for name in found:
            stem = name[:20]
            plain = name[20:] in (LOG_SUFFIX, *_INDEX_SUFFIXES)
            if plain and stem.isdigit() and covered_from <= int(stem) < covered_to:
                logger.info("%s/%s was replaced by compaction before the last stop", directory, name)
                files.unlink(f"{directory}/{name}")
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP_SUFFIX)]}")
    files.sync_dir(directory)
