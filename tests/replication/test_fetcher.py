"""A fetcher's conversation with its leader, without clock or socket: what it asks, what it makes of the answers."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse
from pylogd.protocol.messages.fetch import PartitionData as Data
from pylogd.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pylogd.replication.fetch_state import FetchSettings
from pylogd.replication.fetcher import NEVER_MS, Fetcher
from pylogd.replication.replicas import Replicas
from pylogd.runtime.files import File
from support.logs import append, batch, new_log

TOPIC_ID = b"t" * 16
OTHER_ID = b"u" * 16


class Follower:
    """A fetcher of one or two partitions, and the leader's log as a source of answers."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.replicas = Replicas(2, SimpleNamespace(call_soon=lambda *args: None))  # type: ignore[arg-type]
        self.log = new_log(directory / "follower", **config)
        self.leader = new_log(directory / "leader")
        self.partition = self.replicas.add("t", 0, TOPIC_ID, self.log)
        self.partition.become_follower(5, 1, (1, 2), (1, 2), 0)
        self.fetcher = Fetcher(2, 1, FetchSettings(backoff_ms=1000))
        self.fetcher.broker_epoch = 77

    def start(self, epoch: int = 5) -> Follower:
        self.fetcher.add(self.partition, epoch)
        return self

    def ask(self, now_ms: int = 0) -> Any:
        return self.fetcher.next_request(now_ms)

    def asked(self, now_ms: int = 0) -> list[tuple[int, int, int, int]]:
        """(leader epoch, offset, last fetched epoch, log start) of every partition in the next request."""
        request = self.ask(now_ms)
        assert isinstance(request, FetchRequest)
        return [
            (part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch, part.log_start_offset)
            for topic in request.topics
            for part in topic.partitions
        ]

    def answer(self, *parts: Data, session: int = 9, error: ErrorCode = ErrorCode.NONE, now_ms: int = 0) -> None:
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))] if parts else []
        response = FetchResponse(error_code=int(error), session_id=session, responses=topics)
        self.fetcher.received(response, now_ms)

    def data(self, *, high_watermark: int = 0, start: int = 0, **options: Any) -> Data:
        """What the leader has from the follower's end on."""
        found = self.leader.read(self.log.log_end_offset, 1 << 20, self.leader.log_end_offset)
        records = b"" if found.range is None else memoryview(bytearray(found.range.read()))
        return Data(0, 0, high_watermark, -1, start, records=records, **options)


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_the_first_request_is_full_and_later_ones_name_only_changes(follower: Follower) -> None:
    follower.start()
    request = follower.ask()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 77)
    assert [(part.fetch_offset, part.last_fetched_epoch) for part in request.topics[0].partitions] == [(0, -1)]
    assert follower.ask() is None, "one request at a time"
    follower.answer(Data(0, 0, 0, -1, 0))
    request = follower.ask()
    assert (request.session_id, request.session_epoch, request.topics) == (9, 1, [])
    append(follower.leader, batch(3), 5)
    follower.answer(follower.data(high_watermark=2))
    assert follower.log.log_end_offset == 3
    assert follower.log.high_watermark == 2
    assert follower.asked() == [(5, 3, 5, 0)]
    follower.answer()
    assert follower.asked() == []


def test_bytes_land_verbatim(follower: Follower) -> None:
    follower.start().ask()
    for size in (10, 200, 3000):
        append(follower.leader, batch(2, size=size), 5)
    follower.answer(follower.data())
    assert Path(follower.log.active.file.path).read_bytes() == Path(follower.leader.active.file.path).read_bytes()


def test_the_watermark_is_bounded_by_the_own_end_and_never_moves_back(follower: Follower) -> None:
    append(follower.leader, batch(4), 5)
    follower.start().ask()
    follower.answer(follower.data(high_watermark=100))
    assert follower.log.high_watermark == 4
    follower.ask()
    follower.answer(Data(0, 0, 2, -1, 0))
    assert follower.log.high_watermark == 4


def test_batches_of_a_later_epoch_than_the_one_asked_with_are_dropped(follower: Follower) -> None:
    append(follower.leader, batch(2), 5)
    append(follower.leader, batch(2), 6)
    follower.start().ask()
    follower.answer(follower.data())
    assert follower.log.log_end_offset == 2
    assert follower.asked() == [(5, 2, 5, 0)]


def test_a_diverging_epoch_cuts_the_log(follower: Follower) -> None:
    append(follower.log, batch(3), 1)
    append(follower.log, batch(4), 3)
    follower.start()
    assert follower.asked() == [(5, 7, 3, 0)]
    follower.answer(Data(0, 0, 2, -1, 0, diverging_epoch=EpochEndOffset(1, 3)))
    assert follower.log.log_end_offset == 3
    assert follower.asked() == [(5, 3, 1, 0)]


def test_an_answer_for_an_older_leader_epoch_is_ignored(follower: Follower) -> None:
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    late = follower.data(high_watermark=2)
    follower.start(epoch=6)
    follower.answer(late)
    assert follower.log.log_end_offset == 0
    assert follower.asked() == [(6, 0, -1, 0)]


def test_a_removed_partition_is_forgotten_by_the_session(follower: Follower) -> None:
    other = follower.replicas.add("u", 0, OTHER_ID, new_log(Path(follower.log.directory).parent / "other"))
    follower.start()
    follower.fetcher.add(other, 0)
    follower.ask()
    append(follower.leader, batch(2), 5)
    follower.fetcher.remove((TOPIC_ID, 0))
    follower.answer(follower.data())
    assert follower.log.log_end_offset == 0
    request = follower.ask()
    assert request.topics == []
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(TOPIC_ID, [0])]
    follower.fetcher.remove((OTHER_ID, 0))
    follower.answer()
    assert follower.ask() is None
    assert follower.fetcher.wake_ms() == NEVER_MS


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_does_not_know_yet_is_asked_again_soon_and_then_less_often(
    follower: Follower, code: ErrorCode
) -> None:
    follower.start()
    now_ms, pauses = 0, []
    for _ in range(8):
        assert follower.asked(now_ms) == [(5, 0, -1, 0)]
        follower.answer(Data(0, int(code), -1, -1, -1), now_ms=now_ms)
        assert follower.ask(now_ms) is None
        pauses.append(follower.fetcher.wake_ms() - now_ms)
        now_ms = follower.fetcher.wake_ms()
    assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_fenced_epoch_waits_for_new_metadata(follower: Follower) -> None:
    follower.start().ask()
    follower.answer(Data(0, int(ErrorCode.FENCED_LEADER_EPOCH), -1, -1, -1))
    assert follower.ask(1 << 40) is None
    assert list(follower.fetcher.failed_partitions) == [(TOPIC_ID, 0)]
    follower.start(epoch=6)
    assert follower.asked() == [(6, 0, -1, 0)]


def test_corrupt_records_are_asked_for_again(follower: Follower) -> None:
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    damaged = follower.data()
    damaged.records[80] ^= 1
    follower.answer(damaged)
    assert follower.log.log_end_offset == 0
    assert follower.asked(now_ms=20) == [(5, 0, -1, 0)]
    follower.answer(follower.data())
    assert follower.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ],
)
def test_a_lost_session_starts_over(follower: Follower, error: ErrorCode, session_id: int) -> None:
    follower.start().ask()
    follower.answer()
    follower.ask()
    follower.answer(error=error)
    request = follower.ask()
    assert (request.session_id, request.session_epoch, len(request.topics)) == (session_id, 0, 1)


def test_a_broken_connection_starts_over(follower: Follower) -> None:
    follower.start().ask()
    follower.answer()
    follower.ask()
    follower.fetcher.failed(0)
    assert follower.asked() == [(5, 0, -1, 0)]


def test_a_leader_without_room_for_sessions_gets_full_requests(follower: Follower) -> None:
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    follower.answer(follower.data(), session=0)
    assert follower.log.log_end_offset == 2
    for _ in range(2):
        assert follower.asked() == [(5, 2, 5, 0)]
        follower.answer(session=0)


def offsets(offset: int, error: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=int(error))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def timestamp(request: Any) -> int:
    assert isinstance(request, ListOffsetsRequest)
    return request.topics[0].partitions[0].timestamp


def test_a_leader_that_starts_later_means_to_start_anew(follower: Follower) -> None:
    append(follower.log, batch(3), 1)
    follower.start().ask()
    follower.answer(Data(0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, -1, -1))
    assert timestamp(follower.ask()) == -1
    follower.fetcher.received(offsets(20), 0)
    assert timestamp(follower.ask()) == -2
    follower.fetcher.received(offsets(12), 0)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (12, 12)
    assert follower.asked() == [(5, 12, -1, 12)]


def test_an_unclean_leader_that_ends_earlier_cuts_the_log(follower: Follower) -> None:
    append(follower.log, batch(1), 1)
    append(follower.log, batch(2), 1)
    follower.start().ask()
    follower.answer(Data(0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, -1, -1))
    assert timestamp(follower.ask()) == -1
    follower.fetcher.received(offsets(1), 0)
    assert follower.asked() == [(5, 1, 1, 0)]


def test_a_question_about_offsets_that_fails_is_asked_again(follower: Follower) -> None:
    follower.start().ask()
    follower.answer(Data(0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, -1, -1))
    assert timestamp(follower.ask()) == -1
    follower.fetcher.failed(0)
    assert timestamp(follower.ask()) == -1
    follower.fetcher.received(offsets(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), 0)
    assert follower.ask() is None
    assert follower.asked(now_ms=20) == [(5, 0, -1, 0)]


def test_the_log_start_follows_the_leader(follower: Follower) -> None:
    append(follower.leader, batch(1), 5)
    append(follower.leader, batch(1), 5)
    follower.start().ask()
    follower.answer(follower.data(high_watermark=2))
    follower.ask()
    follower.answer(Data(0, 0, 2, -1, 1))
    assert follower.log.log_start_offset == 1
    assert follower.asked() == [(5, 2, 5, 1)]


def test_a_log_that_starts_inside_a_batch_begins_with_that_batch(follower: Follower) -> None:
    append(follower.leader, batch(4), 5)
    follower.log.truncate_fully_and_start_at(2)
    follower.start()
    assert follower.asked() == [(5, 2, -1, 2)]
    found = follower.leader.read(2, 1 << 20, 4).range
    assert found is not None
    follower.answer(Data(0, 0, 4, -1, 2, records=memoryview(bytearray(found.read()))))
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 4)


class Slow(Follower):
    """A disk whose flushes end when the test says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, flush_messages=1)
        self.log.environment.request_flush = lambda log, up_to=None: None  # type: ignore[method-assign]


def test_nothing_is_asked_before_what_was_fetched_is_on_disk(tmp_path: Path) -> None:
    follower = Slow(tmp_path)
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    follower.answer(follower.data())
    assert follower.log.log_end_offset == 2
    assert follower.ask() is None
    follower.log.flush()
    assert follower.fetcher.flushed(follower.partition)
    assert follower.asked() == [(5, 2, 5, 0)]


def test_a_new_leader_is_not_told_of_what_is_not_on_disk(tmp_path: Path) -> None:
    """The epoch changes between the append and its flush: the first fetch of the new epoch waits like the next of the
    old one would have."""
    follower = Slow(tmp_path)
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    follower.answer(follower.data())
    follower.partition.become_follower(6, 1, (1, 2), (1, 2), 1)
    follower.start(6)
    assert follower.ask() is None
    follower.log.flush()
    assert follower.fetcher.flushed(follower.partition)
    assert follower.asked() == [(6, 2, 5, 0)]


def test_a_log_without_epochs_keeps_only_what_is_replicated(follower: Follower) -> None:
    append(follower.log, batch(1), 1)
    append(follower.log, batch(1), 1)
    follower.log.high_watermark = 1
    follower.log.epochs.clear()
    follower.start()
    assert follower.asked() == [(5, 1, -1, 0)]


def test_a_failed_disk_stops_only_its_partition(follower: Follower) -> None:
    append(follower.leader, batch(2), 5)
    other = follower.replicas.add("u", 0, OTHER_ID, new_log(Path(follower.log.directory).parent / "other"))
    follower.start()
    follower.fetcher.add(other, 0)
    follower.ask()
    data = follower.data()
    follower.log.offline = True
    follower.answer(data)
    assert list(follower.fetcher.states) == [(OTHER_ID, 0)]
    assert isinstance(follower.ask(), FetchRequest)


def test_a_full_disk_is_tried_again(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    append(follower.leader, batch(2), 5)
    follower.start().ask()
    data = follower.data()

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(File, "pwrite", full)
        follower.answer(data)
    assert follower.log.log_end_offset == 0
    assert follower.asked(now_ms=20) == [(5, 0, -1, 0)]
    follower.answer(follower.data())
    assert follower.log.log_end_offset == 2
