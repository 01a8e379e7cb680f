"""Committed offsets: who may commit, what is kept, what expires (see support.group_transcript)."""

from __future__ import annotations

import pytest
from pylogd.coordinators.groups.commits import Commit
from pylogd.coordinators.groups.offsets import Offsets
from pylogd.coordinators.shard.effects import Effects
from pylogd.coordinators.shard.record_pairs import encode_record
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponsePartition
from pylogd.protocol.uuids import ZERO
from support.group_transcript import Play, check

HOUR = 60 * 60 * 1000
#: For commits that nobody answers.
ANSWER = OffsetCommitResponsePartition()

MEMBER = """
    > a = join g version=3 protocols=range:{metadata}
    write group g generation 0 None leader None
    > wait 3000
    a: m-1 generation 1 range leader m-1 members m-1({metadata})
    > a = sync g member=m-1 generation=1 assign=m-1:x
    write group g generation 1 range leader m-1 m-1({metadata}|x)
    a: assignment x
"""


def test_a_simple_group() -> None:
    check(
        """
        > f = fetch g t-0
        f: t-0=-1
        > c = commit g t-0=5 u-3=7
        write offset g t-0 5
        write offset g u-3 7
        c: t-0 NONE u-3 NONE
        > f = fetch g t-0 t-1 u-3
        f: t-0=5 t-1=-1 u-3=7
        > f = fetch g
        f: t-0=5 u-3=7
        > reload
        > f = fetch g
        f: t-0=5 u-3=7
        > c = commit g t-0=5 metadata=012345678901234567890
        c: t-0 OFFSET_METADATA_TOO_LARGE
        > c = commit g t-0=5 metadata=äääääääääääääääääääX
        write offset g t-0 5
        c: t-0 NONE
        > c = commit g t-0=5 metadata=😀😀😀😀😀😀😀😀😀😀X
        c: t-0 OFFSET_METADATA_TOO_LARGE
        > c = commit h t-0=1 member=m generation=1
        c: GROUP_ID_NOT_FOUND
        > c = commit h t-0=1 member=m generation=1 version=8
        c: ILLEGAL_GENERATION
        """
    )


def test_who_may_commit_to_a_group_with_members() -> None:
    check(
        MEMBER.format(metadata="")
        + """
        > c = commit g t-0=1 member=m-1 generation=1
        write offset g t-0 1
        c: t-0 NONE
        > c = commit g t-0=1 member=m-1 generation=0
        c: ILLEGAL_GENERATION
        > c = commit g t-0=1 member=m-2 generation=1
        c: UNKNOWN_MEMBER_ID
        > c = commit g t-0=1
        c: UNKNOWN_MEMBER_ID
        > c = commit g t-0=1 member=m-1
        c: ILLEGAL_GENERATION
        > x = leave g member=m-1
        write group g generation 2 None leader None
        x: m-1 NONE
        > c = commit g t-0=1 member=m-1 generation=1
        c: UNKNOWN_MEMBER_ID
        > c = commit g t-0=2
        write offset g t-0 2
        c: t-0 NONE
        """
    )


def test_offsets_of_a_transaction_count_once_it_is_committed() -> None:
    check(
        """
        > c = commit g t-0=5
        write offset g t-0 5
        c: t-0 NONE
        > c = commit g t-0=9 t-1=9 producer=7
        write offset g t-0 9
        write offset g t-1 9
        c: t-0 NONE t-1 NONE
        > f = fetch g t-0 t-1
        f: t-0=5 t-1=-1
        > f = fetch g t-0 t-1 stable
        f: t-0=UNSTABLE_OFFSET_COMMIT t-1=UNSTABLE_OFFSET_COMMIT
        > reload
        > f = fetch g t-0 stable
        f: t-0=UNSTABLE_OFFSET_COMMIT
        > end commit producer=7
        > f = fetch g t-0 t-1 stable
        f: t-0=9 t-1=9
        """
    )


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    check(
        """
        > c = commit g t-0=9 producer=7
        write offset g t-0 9
        c: t-0 NONE
        > c = commit g t-0=8 producer=8
        write offset g t-0 8
        c: t-0 NONE
        > end abort producer=7
        > f = fetch g t-0 stable
        f: t-0=UNSTABLE_OFFSET_COMMIT
        > end abort producer=8
        > f = fetch g t-0 stable
        f: t-0=-1
        """
    )


def test_the_later_record_wins_not_the_later_marker() -> None:
    check(
        """
        > c = commit g t-0=9 producer=7
        write offset g t-0 9
        c: t-0 NONE
        > c = commit g t-0=10
        write offset g t-0 10
        c: t-0 NONE
        > end commit producer=7
        > f = fetch g t-0 stable
        f: t-0=10
        """
    )


def test_a_deleted_offset_takes_pending_ones_along() -> None:
    check(
        """
        > c = commit g t-0=9 producer=7
        write offset g t-0 9
        c: t-0 NONE
        > x = delete-offsets g t-0 t-1
        write offset g t-0 gone
        x: t-0 NONE t-1 NONE
        > end commit producer=7
        > f = fetch g t-0 stable
        f: t-0=-1
        > x = delete-offsets h t-0
        x: GROUP_ID_NOT_FOUND
        """
    )


# Version 1, one topic "t", no user data, as a consumer's subscription is written.
SUBSCRIPTION = "\0\1\0\0\0\1\0\1t\0\0\0\0"


def test_offsets_of_a_subscribed_topic_may_not_be_deleted() -> None:
    check(
        MEMBER.format(metadata=SUBSCRIPTION)
        + """
        > c = commit g t-0=1 u-0=1 member=m-1 generation=1
        write offset g t-0 1
        write offset g u-0 1
        c: t-0 NONE u-0 NONE
        > x = delete-offsets g t-0 u-0
        write offset g u-0 gone
        x: t-0 GROUP_SUBSCRIBED_TO_TOPIC u-0 NONE
        """
    )


def test_offsets_of_other_protocols_may_not_be_deleted_while_there_are_members() -> None:
    check(
        """
        > a = join g version=3 type=connect
        write group g generation 0 None leader None
        > x = delete-offsets g t-0
        x: NON_EMPTY_GROUP
        """
    )


def test_offsets_of_a_simple_group_expire_by_their_commit() -> None:
    check(
        f"""
        > c = commit g t-0=1
        write offset g t-0 1
        c: t-0 NONE
        > wait {HOUR - 1}
        > expire
        > c = commit g t-1=1
        write offset g t-1 1
        c: t-1 NONE
        > wait 1
        > expire
        write offset g t-0 gone
        > wait {HOUR}
        > expire
        write offset g t-1 gone
        write group g gone
        > l = list
        l: nothing
        """
    )


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    check(
        MEMBER.format(metadata="")
        + f"""
        > c = commit g t-0=1 member=m-1 generation=1
        write offset g t-0 1
        c: t-0 NONE
        > x = leave g member=m-1
        write group g generation 2 None leader None
        x: m-1 NONE
        > wait {HOUR - 1}
        > reload
        > expire
        > wait 1
        > expire
        write offset g t-0 gone
        write group g gone
        """
    )


def test_a_live_group_loses_only_offsets_of_topics_it_gave_up() -> None:
    check(
        MEMBER.format(metadata=SUBSCRIPTION)
        + """
        > c = commit g t-0=1 u-0=1 member=m-1 generation=1
        write offset g t-0 1
        write offset g u-0 1
        c: t-0 NONE u-0 NONE
        > reload
        > expire
        > wait 9000
        > h = heartbeat g member=m-1 generation=1
        h: NONE
        """
    ).now_ms += HOUR
    play = check(
        MEMBER.format(metadata=SUBSCRIPTION)
        + """
        > c = commit g t-0=1 u-0=1 member=m-1 generation=1
        write offset g t-0 1
        write offset g u-0 1
        c: t-0 NONE u-0 NONE
        """
    )
    play.now_ms += HOUR
    assert play.perform("expire") == ["write offset g u-0 gone"]


def test_a_retention_of_its_own_counts_first() -> None:
    check(
        """
        > c = commit g t-0=1 retention=5000
        write offset g t-0 1
        c: t-0 NONE
        > c = commit g t-1=1
        write offset g t-1 1
        c: t-1 NONE
        > wait 4999
        > reload
        > expire
        > wait 1
        > expire
        write offset g t-0 gone
        """
    )


def test_an_empty_group_without_offsets_goes() -> None:
    check(
        """
        > a = join g
        write group g generation 0 None leader None
        a: MEMBER_ID_REQUIRED m-1
        > expire
        write group g gone
        > a = join g member=m-1
        a: UNKNOWN_MEMBER_ID m-1
        """
    )


def test_pending_offsets_keep_a_group_and_its_offsets() -> None:
    check(
        f"""
        > c = commit g t-0=1
        write offset g t-0 1
        c: t-0 NONE
        > c = commit g t-0=2 producer=7
        write offset g t-0 2
        c: t-0 NONE
        > wait {HOUR}
        > expire
        > end abort producer=7
        > expire
        write offset g t-0 gone
        write group g gone
        """
    )


def test_offsets_of_a_deleted_topic_go() -> None:
    check(
        """
        > c = commit g t-0=1 u-0=1
        write offset g t-0 1
        write offset g u-0 1
        c: t-0 NONE u-0 NONE
        > c = commit h t-1=2 producer=7
        write offset h t-1 2
        c: t-1 NONE
        > topic-deleted t
        write offset g t-0 gone
        write offset h t-1 gone
        > f = fetch g
        f: u-0=1
        """
    )


@pytest.mark.parametrize("metadata", [None, "", "note", "x" * 126, "x" * 127, "ä" * 100, "x" * 20_000])
@pytest.mark.parametrize("topic_id", [ZERO, bytes(range(16))])
@pytest.mark.parametrize("stored_id", [None, ZERO])
@pytest.mark.parametrize("retention_ms", [-1, 5000])
def test_commits_written_by_hand_are_as_the_codec_writes_them(
    metadata: str | None, topic_id: bytes, stored_id: bytes | None, retention_ms: int
) -> None:
    effects = Effects(1_700_000_000_000, Play().state)
    asked = OffsetCommitRequestPartition(2**31 - 1, 2**62, 7, metadata)
    Offsets().commit(effects, [Commit("grüppe", "t", topic_id, asked, ANSWER, stored_id)], retention_ms)
    (record,), (encoded,) = effects.records, effects.encoded
    assert record.value.topic_id == (topic_id if stored_id is None else ZERO)  # type: ignore[union-attr]
    assert tuple(map(bytes, encoded)) == tuple(map(bytes, encode_record(record)))  # type: ignore[arg-type]


@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize("retention_ms", [-1, 5000])
def test_commits_that_no_batch_can_hold_change_nothing(producer_id: int, retention_ms: int) -> None:
    state = Play().state
    asked = [OffsetCommitRequestPartition(index, 1, 1, "x" * 20) for index in range(10)]
    commits = [Commit("g", "t", ZERO, each, ANSWER) for each in asked]
    effects = Effects(1, state, producer_id=producer_id, batch_bytes_max=400)
    with pytest.raises(KafkaError) as refusal:
        state.offsets.commit(effects, commits, retention_ms)
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (effects.records, state.groups, state.offsets.by_group, state.offsets.pending) == ([], {}, {}, {})
    state.offsets.commit(effects, commits[:4], retention_ms)
    assert len(effects.records) == 4


def test_deletions_that_no_batch_can_hold_change_nothing() -> None:
    state = Play().state
    places = [("t", index) for index in range(30)]
    commits = [Commit("g", topic, ZERO, OffsetCommitRequestPartition(index, 1), ANSWER) for topic, index in places]
    state.offsets.commit(Effects(1, state), commits)
    with pytest.raises(KafkaError):
        state.offsets.delete(Effects(1, state, batch_bytes_max=400), "g", *places)
    assert len(state.offsets.by_group["g"]["t"]) == 30
