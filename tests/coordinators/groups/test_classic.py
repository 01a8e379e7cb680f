"""The classic protocol, transition by transition: scripts without a clock (see support.group_transcript)."""

from __future__ import annotations

from support.group_transcript import check

# A group of two in its first generation; the other scripts begin here.
TWO = """
    > a = join g protocols=range:A
    write group g generation 0 None leader None
    a: MEMBER_ID_REQUIRED m-1
    > a = join g member=m-1 protocols=range:A
    > b = join g protocols=range:B
    b: MEMBER_ID_REQUIRED m-2
    > b = join g member=m-2 protocols=range:B
    > wait 6000
    a: m-1 generation 1 range leader m-1 members m-1(A) m-2(B)
    b: m-2 generation 1 range leader m-1
    > b = sync g member=m-2 generation=1
    > a = sync g member=m-1 generation=1 assign=m-1:x,m-2:y
    write group g generation 1 range leader m-1 m-1(A|x) m-2(B|y)
    b: assignment y
    a: assignment x
"""

ONE = """
    > a = join g version=3
    write group g generation 0 None leader None
    > wait 3000
    a: m-1 generation 1 range leader m-1 members m-1()
    > a = sync g member=m-1 generation=1 assign=m-1:x
    write group g generation 1 range leader m-1 m-1(|x)
    a: assignment x
"""


def test_first_generation() -> None:
    check(TWO)


def test_before_version_4_a_member_joins_without_an_id() -> None:
    check(ONE)


def test_initial_delay_is_extended_while_members_come_up_to_the_rebalance_timeout() -> None:
    check(
        """
        > a = join g version=3 rebalance=7000
        write group g generation 0 None leader None
        > wait 2000
        > b = join g version=3 rebalance=7000
        > wait 2000
        > c = join g version=3 rebalance=7000
        > wait 2000
        > wait 1000
        a: m-1 generation 1 range leader m-1 members m-1() m-2() m-3()
        b: m-2 generation 1 range leader m-1
        c: m-3 generation 1 range leader m-1
        """
    )


def test_a_member_that_joins_later_makes_everybody_join_again() -> None:
    check(
        TWO
        + """
        > c = join g member=m-9
        c: UNKNOWN_MEMBER_ID m-9
        > c = join g version=3 protocols=range:C
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        > a = commit g t-0=5 member=m-1 generation=1
        write offset g t-0 5
        a: t-0 NONE
        > a = join g member=m-1 protocols=range:A
        > b = join g member=m-2 protocols=range:B
        a: m-1 generation 2 range leader m-1 members m-1(A) m-2(B) m-3(C)
        b: m-2 generation 2 range leader m-1
        c: m-3 generation 2 range leader m-1
        > a = commit g t-0=6 member=m-1 generation=2
        a: REBALANCE_IN_PROGRESS
        > a = heartbeat g member=m-1 generation=1
        a: ILLEGAL_GENERATION
        > a = sync g member=m-1 generation=1
        a: ILLEGAL_GENERATION
        """
    )


def test_members_that_do_not_join_again_in_time_are_out_and_leadership_moves() -> None:
    check(
        TWO.replace("protocols", "session=90000 protocols")
        + """
        > b = join g member=m-2 session=90000 protocols=range:B2
        > wait 59999
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        > wait 1
        b: m-2 generation 2 range leader m-2 members m-2(B2)
        > a = heartbeat g member=m-1 generation=2
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_a_session_that_ends_starts_a_rebalance() -> None:
    check(
        TWO
        + """
        > wait 9000
        > b = heartbeat g member=m-2 generation=1
        b: NONE
        > wait 2000
        > b = heartbeat g member=m-2 generation=1
        b: REBALANCE_IN_PROGRESS
        > b = join g member=m-2 protocols=range:B
        b: m-2 generation 2 range leader m-2 members m-2(B)
        """
    )


def test_an_offset_commit_keeps_a_session_alive() -> None:
    check(
        ONE
        + """
        > wait 9000
        > a = commit g t-0=1 member=m-1 generation=1
        write offset g t-0 1
        a: t-0 NONE
        > wait 9000
        > a = heartbeat g member=m-1 generation=1
        a: NONE
        > wait 11000
        write group g generation 2 None leader None
        > a = heartbeat g member=m-1 generation=1
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_leaving() -> None:
    check(
        TWO
        + """
        > x = leave g member=m-1,m-7
        x: m-1 NONE, m-7 UNKNOWN_MEMBER_ID
        > b = join g member=m-2 protocols=range:B
        b: m-2 generation 2 range leader m-2 members m-2(B)
        > x = leave g member=m-2
        write group g generation 3 None leader None
        x: m-2 NONE
        > x = leave g member=m-2
        x: m-2 UNKNOWN_MEMBER_ID
        > x = leave h member=m-2
        x: UNKNOWN_MEMBER_ID
        > d = describe g
        d: g Empty consumer
        """
    )


def test_a_pending_member_may_leave_or_be_forgotten() -> None:
    check(
        """
        > a = join g
        write group g generation 0 None leader None
        a: MEMBER_ID_REQUIRED m-1
        > b = join g session=20000
        b: MEMBER_ID_REQUIRED m-2
        > x = leave g member=m-1
        x: m-1 NONE
        > a = join g member=m-1
        a: UNKNOWN_MEMBER_ID m-1
        > wait 20000
        > b = join g member=m-2
        b: UNKNOWN_MEMBER_ID m-2
        """
    )


def test_a_rebalance_waits_for_pending_members_as_long_as_their_session() -> None:
    check(
        ONE
        + """
        > b = join g
        b: MEMBER_ID_REQUIRED m-2
        > a = join g member=m-1 protocols=range:new
        > wait 9000
        > wait 1000
        a: m-1 generation 2 range leader m-1 members m-1(new)
        """
    )


def test_a_follower_that_joins_again_unchanged_hears_the_present_generation() -> None:
    check(
        TWO
        + """
        > b = join g member=m-2 protocols=range:B
        b: m-2 generation 1 range leader m-1
        > b = sync g member=m-2 generation=1
        b: assignment y
        """
    )


def test_a_leader_that_joins_again_wants_a_rebalance() -> None:
    check(
        TWO
        + """
        > a = join g member=m-1 protocols=range:A
        > b = heartbeat g member=m-2 generation=1
        b: REBALANCE_IN_PROGRESS
        > b = sync g member=m-2 generation=1
        b: REBALANCE_IN_PROGRESS
        """
    )


def test_while_the_assignment_is_made() -> None:
    """Who asks again gets the same answer; who changes its mind starts over, and parked SyncGroups are told."""
    check(
        ONE
        + """
        > b = join g version=3
        > a = join g member=m-1
        a: m-1 generation 2 range leader m-1 members m-1() m-2()
        b: m-2 generation 2 range leader m-1
        > a = join g member=m-1
        a: m-1 generation 2 range leader m-1 members m-1() m-2()
        > b = join g member=m-2
        b: m-2 generation 2 range leader m-1
        > b = sync g member=m-2 generation=2
        > c = join g version=3
        b: REBALANCE_IN_PROGRESS
        """
    )


def test_members_that_never_sync_are_out() -> None:
    check(
        ONE
        + """
        > b = join g version=3
        > a = join g member=m-1 session=90000
        a: m-1 generation 2 range leader m-1 members m-1() m-2()
        b: m-2 generation 2 range leader m-1
        > b = sync g member=m-2 generation=2
        > wait 60000
        b: REBALANCE_IN_PROGRESS
        > b = join g member=m-2
        b: m-2 generation 3 range leader m-2 members m-2()
        """
    )


def test_protocols_are_chosen_by_votes() -> None:
    check(
        """
        > a = join g version=3 protocols=range:1,roundrobin:2
        write group g generation 0 None leader None
        > b = join g version=3 protocols=roundrobin:3,range:4
        > c = join g version=3 protocols=sticky:5,roundrobin:6,range:7
        > d = join g version=3 protocols=sticky:5
        d: INCONSISTENT_GROUP_PROTOCOL
        > d = join g version=3 protocols=range:5 type=connect
        d: INCONSISTENT_GROUP_PROTOCOL
        > wait 6000
        a: m-1 generation 1 roundrobin leader m-1 members m-1(2) m-2(3) m-3(6)
        b: m-2 generation 1 roundrobin leader m-1
        c: m-3 generation 1 roundrobin leader m-1
        > a = sync g member=m-1 generation=1 protocol=range
        a: INCONSISTENT_GROUP_PROTOCOL
        """
    )


def test_a_group_has_room_for_so_many() -> None:
    """In a rebalance those who come first stay."""
    check(
        ONE
        + """
        > b = join g version=3
        > a = join g member=m-1
        a: m-1 generation 2 range leader m-1 members m-1() m-2()
        b: m-2 generation 2 range leader m-1
        > c = join g version=3
        c: GROUP_MAX_SIZE_REACHED
        > b = join g member=m-2 protocols=range:new
        > c = join g version=3
        > a = join g member=m-1
        a: GROUP_MAX_SIZE_REACHED
        """,
        group_max_size=2,
    )


# -- static members

STATIC = """
    > a = join g instance=i1 protocols=range:A
    write group g generation 0 None leader None
    > b = join g instance=i2 protocols=range:B
    > wait 6000
    a: i1-1 generation 1 range leader i1-1 members i1-1(A) i2-2(B)
    b: i2-2 generation 1 range leader i1-1
    > a = sync g member=i1-1 instance=i1 generation=1 assign=i1-1:x,i2-2:y
    write group g generation 1 range leader i1-1 i1-1(A|x) i2-2(B|y)
    a: assignment x
    > b = sync g member=i2-2 instance=i2 generation=1
    b: assignment y
"""


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    check(
        STATIC
        + """
        > c = join g instance=i2 protocols=range:B
        write group g generation 1 range leader i1-1 i1-1(A|x) i2-3(B|y)
        c: i2-3 generation 1 range leader i1-1
        > c = sync g member=i2-3 instance=i2 generation=1
        c: assignment y
        > b = heartbeat g member=i2-2 instance=i2 generation=1
        b: FENCED_INSTANCE_ID
        > b = commit g t-0=1 member=i2-2 instance=i2 generation=1
        b: FENCED_INSTANCE_ID
        > b = join g member=i2-2 instance=i2 protocols=range:B
        b: FENCED_INSTANCE_ID i2-2
        > x = leave g member=i2-2 instance=i2
        x: i2-2 FENCED_INSTANCE_ID
        """
    )


def test_a_static_leader_comes_back_and_skips_its_assignment() -> None:
    """Only from version 9 on; older clients are made to believe that another leads."""
    check(
        STATIC
        + """
        > c = join g instance=i1 protocols=range:A
        write group g generation 1 range leader i1-3 i2-2(B|y) i1-3(A|x)
        c: i1-3 generation 1 range leader i1-3 members i2-2(B) i1-3(A) skip
        > d = join g instance=i1 protocols=range:A version=8
        write group g generation 1 range leader i1-4 i2-2(B|y) i1-4(A|x)
        d: i1-4 generation 1 range leader i1-3
        """
    )


def test_new_metadata_of_a_static_member_is_written_without_a_rebalance() -> None:
    check(
        STATIC
        + """
        > c = join g instance=i2 protocols=range:C
        write group g generation 1 range leader i1-1 i1-1(A|x) i2-3(C|y)
        c: i2-3 generation 1 range leader i1-1
        """
    )


def test_a_static_member_with_another_protocol_starts_a_rebalance() -> None:
    check(
        """
        > a = join g instance=i1 protocols=range:A,sticky:S
        write group g generation 0 None leader None
        > wait 3000
        a: i1-1 generation 1 range leader i1-1 members i1-1(A)
        > a = sync g member=i1-1 instance=i1 generation=1 assign=i1-1:x
        write group g generation 1 range leader i1-1 i1-1(A|x)
        a: assignment x
        > b = join g instance=i1 protocols=sticky:S,range:A
        b: i1-2 generation 2 sticky leader i1-2 members i1-2(S)
        """
    )


def test_a_static_member_does_not_leave_by_being_late() -> None:
    check(
        STATIC
        + """
        > a = join g member=i1-1 instance=i1 protocols=range:A2 session=1000000
        > wait 9000
        > b = heartbeat g member=i2-2 instance=i2 generation=1
        b: REBALANCE_IN_PROGRESS
        > wait 9000
        > b = heartbeat g member=i2-2 instance=i2 generation=1
        b: REBALANCE_IN_PROGRESS
        > wait 12000
        a: i1-1 generation 2 range leader i1-1 members i1-1(A2)
        """
    )


def test_an_administrator_removes_a_static_member_by_instance() -> None:
    check(
        STATIC
        + """
        > x = leave g instance=i2
        x: i2 NONE
        > x = leave g instance=i2
        x: i2 UNKNOWN_MEMBER_ID
        > a = heartbeat g member=i1-1 instance=i1 generation=1
        a: REBALANCE_IN_PROGRESS
        """
    )


def test_a_second_process_with_the_same_instance_fences_the_first_while_it_waits() -> None:
    check(
        """
        > a = join g instance=i1
        write group g generation 0 None leader None
        > b = join g instance=i1
        a: FENCED_INSTANCE_ID i1-1
        > wait 3000
        b: i1-2 generation 1 range leader i1-2 members i1-2()
        """
    )


# -- a new coordinator


def test_a_stable_group_survives_the_coordinator() -> None:
    check(
        TWO
        + """
        > reload
        > a = heartbeat g member=m-1 generation=1
        a: NONE
        > b = sync g member=m-2 generation=1
        b: assignment y
        > d = describe g
        d: g Stable consumer range m-1(A|x) m-2(B|y)
        > wait 9000
        > a = heartbeat g member=m-1 generation=1
        a: NONE
        > wait 2000
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        """
    )


def test_a_rebalance_that_was_not_finished_begins_again() -> None:
    check(
        TWO
        + """
        > c = join g version=3
        > a = join g member=m-1
        > reload
        > a = join g member=m-1 protocols=range:A
        > b = heartbeat g member=m-2 generation=1
        b: REBALANCE_IN_PROGRESS
        > b = join g member=m-2 protocols=range:B
        a: m-1 generation 2 range leader m-1 members m-1(A) m-2(B)
        b: m-2 generation 2 range leader m-1
        > c = join g member=m-3
        c: UNKNOWN_MEMBER_ID m-3
        """
    )


def test_a_group_that_became_too_large_rebalances_when_it_is_loaded() -> None:
    play = check(TWO)
    play.config["group.max.size"] = 1
    play.reload()
    assert play.perform("d = describe g")[0].startswith("d: g PreparingRebalance")
    assert play.perform("a = join g member=m-1 protocols=range:A") == []
    assert play.perform("b = join g member=m-2 protocols=range:B") == [
        "b: GROUP_MAX_SIZE_REACHED",
    ]


def test_listing_and_describing() -> None:
    check(
        ONE
        + """
        > c = commit h t-0=1
        write offset h t-0 1
        c: t-0 NONE
        > l = list
        l: g Stable classic, h Empty classic
        > l = list stable
        l: g Stable classic
        > d = describe g x
        d: g Stable consumer range m-1(|x), x Dead GROUP_ID_NOT_FOUND
        > b = join g version=3
        > d = describe g
        d: g PreparingRebalance consumer m-1(|x) m-2(|)
        > x = delete g h z
        write offset h t-0 gone
        write group h gone
        x: g NON_EMPTY_GROUP, h NONE, z GROUP_ID_NOT_FOUND
        > l = list
        l: g PreparingRebalance classic
        """
    )


def test_who_is_heard_of_keeps_its_session_while_nothing_can_be_written() -> None:
    """Joining and syncing go on; an assignment that cannot be written makes everybody join again."""
    check(
        TWO
        + """
        > writable no
        > c = join h
        c: COORDINATOR_NOT_AVAILABLE
        > wait 8000
        > a = commit g t-0=5 member=m-1 generation=1
        a: COORDINATOR_NOT_AVAILABLE
        > b = heartbeat g member=m-2 generation=1
        b: NONE
        > wait 8000
        > a = join g member=m-1 protocols=range:A
        > wait 8000
        > b = join g member=m-2 protocols=range:B
        a: m-1 generation 2 range leader m-1 members m-1(A) m-2(B)
        b: m-2 generation 2 range leader m-1
        > wait 8000
        > b = sync g member=m-2 generation=2
        > a = sync g member=m-1 generation=2 assign=m-1:x,m-2:y
        b: COORDINATOR_NOT_AVAILABLE
        a: COORDINATOR_NOT_AVAILABLE
        > wait 8000
        > a = join g member=m-1 protocols=range:A
        > b = join g member=m-2 protocols=range:B
        a: m-1 generation 3 range leader m-1 members m-1(A) m-2(B)
        b: m-2 generation 3 range leader m-1
        > writable yes
        > wait 500
        > b = sync g member=m-2 generation=3
        > a = sync g member=m-1 generation=3 assign=m-1:x,m-2:y
        write group g generation 3 range leader m-1 m-1(A|x) m-2(B|y)
        b: assignment y
        a: assignment x
        """
    )


def test_a_static_member_does_not_come_back_half_while_nothing_can_be_written() -> None:
    check(
        """
        > a = join g instance=i
        write group g generation 0 None leader None
        > wait 3000
        a: i-1 generation 1 range leader i-1 members i-1()
        > a = sync g member=i-1 instance=i generation=1 assign=i-1:x
        write group g generation 1 range leader i-1 i-1(|x)
        a: assignment x
        > writable no
        > b = join g instance=i
        b: COORDINATOR_NOT_AVAILABLE
        > a = heartbeat g member=i-1 instance=i generation=1
        a: NONE
        """
    )
