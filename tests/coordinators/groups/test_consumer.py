"""The new consumer protocol, transition by transition: scripts without a clock (see support.consumer_transcript).

write member    what a member says about itself
write epoch     the group's epoch
write target    what a member shall have; the epoch for which all have been assigned
write current   how far a member has come: epoch before -> epoch, state, what it has
"""

from __future__ import annotations

from support.consumer_play import PAIR, check


def test_two_members_share_step_by_step() -> None:
    check(
        PAIR
        + """
        # b is in the new epoch at once, but owns nothing before a has given it up.
        > b = beat g b 3
        write current g b 3->3 unreleased []
        b: b epoch 3
        > a = beat g a 2
        write current g a 2->2 unrevoked [t:0.1] revoking [t:2.3]
        a: a epoch 2 [t:0.1]
        > a = beat g a 2 owned=t:0.1.2.3
        a: a epoch 2
        > b = beat g b 3
        b: b epoch 3
        > d = describe-consumer g
        d: g Reconciling 3/3 uniform, a at 2 [t:0.1.2.3]->[t:0.1], b at 3 []->[t:2.3]
        > a = beat g a 2 owned=t:0.1
        write current g a 2->3 stable [t:0.1]
        a: a epoch 3
        > b = beat g b 3
        write current g b 3->3 stable [t:2.3]
        b: b epoch 3 [t:2.3]
        > b = beat g b 3 owned=t:2.3
        b: b epoch 3
        > d = describe-consumer g
        d: g Stable 3/3 uniform, a at 3 [t:0.1]->[t:0.1], b at 3 [t:2.3]->[t:2.3]
        """,
    )


def test_a_new_coordinator_goes_on_in_the_middle_of_a_reconciliation() -> None:
    check(
        PAIR
        + """
        > a = beat g a 2
        write current g a 2->2 unrevoked [t:0.1] revoking [t:2.3]
        a: a epoch 2 [t:0.1]
        > reload
        > d = describe-consumer g
        d: g Reconciling 3/3 uniform, a at 2 [t:0.1.2.3]->[t:0.1], b at 3 []->[t:2.3]
        > b = beat g b 3
        write current g b 3->3 unreleased []
        b: b epoch 3
        > a = beat g a 2 owned=t:0.1
        write current g a 2->3 stable [t:0.1]
        a: a epoch 3
        > reload
        > b = beat g b 3
        write current g b 3->3 stable [t:2.3]
        b: b epoch 3 [t:2.3]
        > reload
        > d = describe-consumer g
        d: g Stable 3/3 uniform, a at 3 [t:0.1]->[t:0.1], b at 3 [t:2.3]->[t:2.3]
        """,
    )


def test_a_member_that_leaves_frees_its_partitions_for_the_next_heartbeat() -> None:
    check(
        PAIR
        + """
        > a = beat g a -1
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 4
        a: a epoch -1
        > a = beat g a 2
        a: UNKNOWN_MEMBER_ID
        > b = beat g b 3
        write target g b [t:0.1.2.3]
        write target g epoch 4
        write current g b 3->4 stable [t:0.1.2.3]
        b: b epoch 4 [t:0.1.2.3]
        > b = beat g b -1
        write current g b gone
        write target g b gone
        write member g b gone
        write epoch g 5
        b: b epoch -1
        > d = describe-consumer g
        d: g Empty 5/4 uniform
        > a = beat g a 0 topics=t
        write member g a (t)
        write epoch g 6
        write target g a [t:0.1.2.3]
        write target g epoch 6
        write current g a 0->6 stable [t:0.1.2.3]
        a: a epoch 6 [t:0.1.2.3]
        """,
    )


def test_an_answer_that_was_lost_is_given_again() -> None:
    check(
        PAIR
        + """
        > a = beat g a 2 owned=t:0.1
        write current g a 2->3 stable [t:0.1]
        a: a epoch 3 [t:0.1]
        # The answer is lost: a comes again with the epoch before, and with nothing that it has not got.
        > a = beat g a 2 owned=t:0.1
        a: a epoch 3
        > a = beat g a 2
        a: FENCED_MEMBER_EPOCH
        > a = beat g a 2 owned=t:0.1.2
        a: FENCED_MEMBER_EPOCH
        > a = beat g a 1 owned=t:0
        a: FENCED_MEMBER_EPOCH
        > a = beat g a 4 owned=t:0
        a: FENCED_MEMBER_EPOCH
        # Fenced, it starts over and keeps what it is meant to have.
        > a = beat g a 0 topics=t
        a: a epoch 3 [t:0.1]
        """,
    )


def test_requests_that_make_no_sense() -> None:
    check(
        """
        > a = beat g a 1
        a: GROUP_ID_NOT_FOUND
        > a = beat g a -1
        a: GROUP_ID_NOT_FOUND
        > a = beat g a -2
        a: INVALID_REQUEST
        > a = beat g a -2 instance=i
        a: GROUP_ID_NOT_FOUND
        > a = beat g a -3
        a: INVALID_REQUEST
        > a = beat g a 0 rebalance=-1
        a: INVALID_REQUEST
        > a = beat g a 0 owned=t:0
        a: INVALID_REQUEST
        > a = beat g a 0 assignor=magic
        a: UNSUPPORTED_ASSIGNOR
        > a = beat g a 0 regex=(
        a: INVALID_REGULAR_EXPRESSION
        > d = describe-consumer g
        d: g GROUP_ID_NOT_FOUND
        """,
    )


def test_who_is_heard_of_keeps_its_session_while_nothing_can_be_written() -> None:
    check(
        PAIR
        + """
        > c = beat g c 0 topics=u
        write member g c (u)
        write epoch g 4
        write target g c []
        write target g epoch 4
        write current g c 0->4 stable []
        c: c epoch 4 []
        > a = beat g a 2
        write current g a 2->2 unrevoked [t:0.1] revoking [t:2.3]
        a: a epoch 2 [t:0.1]
        > writable no
        > wait 30000
        # What a heartbeat brings is refused, the heartbeat itself counts. c is silent.
        > a = beat g a 2 owned=t:0.1
        a: COORDINATOR_NOT_AVAILABLE
        > b = beat g b 3
        b: COORDINATOR_NOT_AVAILABLE
        > wait 30000
        > a = beat g a 2 owned=t:0.1
        a: COORDINATOR_NOT_AVAILABLE
        > b = beat g b 3
        b: COORDINATOR_NOT_AVAILABLE
        > a = beat g a 2
        a: a epoch 2
        > x = beat g a -1
        x: COORDINATOR_NOT_AVAILABLE
        > d = beat g d 0 topics=t
        d: COORDINATOR_NOT_AVAILABLE
        > wait 10000
        > writable yes
        > wait 500
        write current g c gone
        write target g c gone
        write member g c gone
        write epoch g 5
        > a = beat g a 2 owned=t:0.1
        write target g epoch 5
        write current g a 2->5 stable [t:0.1]
        a: a epoch 5
        > b = beat g b 3
        write current g b 3->5 stable [t:2.3]
        b: b epoch 5 [t:2.3]
        """,
    )


def test_a_static_member_does_not_come_back_half_while_nothing_can_be_written() -> None:
    check(
        """
        > topic t 2
        > a = beat g a 0 topics=t instance=i
        write member g a (t) instance i
        write epoch g 2
        write target g a [t:0.1]
        write target g epoch 2
        write current g a 0->2 stable [t:0.1]
        a: a epoch 2 [t:0.1]
        > a = beat g a -2 instance=i
        write current g a 0->-2 stable [t:0.1]
        a: a epoch -2
        > writable no
        > b = beat g b 0 topics=t instance=i
        b: COORDINATOR_NOT_AVAILABLE
        > wait 46000
        > writable yes
        > wait 500
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 3
        """,
    )


def test_a_session_ends_without_heartbeats() -> None:
    check(
        PAIR
        + """
        > wait 44000
        > b = beat g b 3
        write current g b 3->3 unreleased []
        b: b epoch 3
        > wait 1000
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 4
        > b = beat g b 3
        write target g b [t:0.1.2.3]
        write target g epoch 4
        write current g b 3->4 stable [t:0.1.2.3]
        b: b epoch 4 [t:0.1.2.3]
        > wait 44999
        > wait 1
        write current g b gone
        write target g b gone
        write member g b gone
        write epoch g 5
        > d = describe-consumer g
        d: g Empty 5/4 uniform
        """,
    )


def test_a_member_must_give_up_in_time_what_it_has_to() -> None:
    check(
        PAIR
        + """
        > a = beat g a 2 rebalance=5000
        write member g a (t)
        write current g a 2->2 unrevoked [t:0.1] revoking [t:2.3]
        a: a epoch 2 [t:0.1]
        > wait 4000
        > a = beat g a 2 owned=t:0.1.2.3
        a: a epoch 2
        > wait 1000
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 4
        > b = beat g b 3
        write target g b [t:0.1.2.3]
        write target g epoch 4
        write current g b 3->4 stable [t:0.1.2.3]
        b: b epoch 4 [t:0.1.2.3]
        """,
    )


def test_assignments_are_made_with_a_pause_between_them() -> None:
    check(
        """
        > topic t 2
        > a = beat g a 0 topics=t
        write member g a (t)
        write epoch g 2
        write target g a [t:0.1]
        write target g epoch 2
        write current g a 0->2 stable [t:0.1]
        a: a epoch 2 [t:0.1]
        > b = beat g b 0 topics=t
        write member g b (t)
        write epoch g 3
        write current g b 0->2 stable []
        b: b epoch 2 []
        > c = beat g c 0 topics=t
        write member g c (t)
        write epoch g 4
        write current g c 0->2 stable []
        c: c epoch 2 []
        > d = describe-consumer g
        d: g Assigning 4/2 uniform, a at 2 [t:0.1]->[t:0.1], b at 2 []->[], c at 2 []->[]
        > wait 1000
        write target g a [t:0]
        write target g b []
        write target g c [t:1]
        write target g epoch 4
        > d = describe-consumer g
        d: g Reconciling 4/4 uniform, a at 2 [t:0.1]->[t:0], b at 2 []->[], c at 2 []->[t:1]
        """,
        group_consumer_assignment_interval_ms=1000,
    )


def test_settings_of_the_group_count_within_the_bounds_of_the_broker() -> None:
    check(
        """
        > topic t 1
        > configure g consumer.session.timeout.ms=2000
        > configure h consumer.session.timeout.ms=5
        > a = beat g a 0 topics=t
        write member g a (t)
        write epoch g 2
        write target g a [t:0]
        write target g epoch 2
        write current g a 0->2 stable [t:0]
        a: a epoch 2 [t:0]
        > b = beat h b 0
        write member h b ()
        write current h b 0->1 stable []
        b: b epoch 1 []
        > wait 999
        > wait 1
        write current h b gone
        write target h b gone
        write member h b gone
        write epoch h 2
        > wait 999
        > wait 1
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 3
        """,
        group_consumer_min_session_timeout_ms=1000,
    )


def test_a_group_is_full() -> None:
    check(
        """
        > a = beat g a 0
        write member g a ()
        write current g a 0->1 stable []
        a: a epoch 1 []
        > b = beat g b 0
        b: GROUP_MAX_SIZE_REACHED
        > a = beat g a 0
        a: a epoch 1 []
        """,
        group_consumer_max_size=1,
    )


def test_topics_appear_grow_and_go() -> None:
    check(
        """
        > a = beat g a 0 topics=t
        write member g a (t)
        write epoch g 2
        write target g a []
        write target g epoch 2
        write current g a 0->2 stable []
        a: a epoch 2 []
        > topic t 1
        > a = beat g a 2
        write epoch g 3
        write target g a [t:0]
        write target g epoch 3
        write current g a 2->3 stable [t:0]
        a: a epoch 3 [t:0]
        > topic t 2
        > topic u 1
        > a = beat g a 3
        write epoch g 4
        write target g a [t:0.1]
        write target g epoch 4
        write current g a 3->4 stable [t:0.1]
        a: a epoch 4 [t:0.1]
        > topic-gone t
        > a = beat g a 4
        write epoch g 5
        write target g a []
        write target g epoch 5
        write current g a 4->4 unrevoked [] revoking [t:0.1]
        a: a epoch 4 []
        > a = beat g a 4 owned=
        write current g a 4->5 stable []
        a: a epoch 5
        """,
    )


def test_a_member_changes_its_subscription() -> None:
    check(
        """
        > topic t 2
        > topic u 2
        > a = beat g a 0 topics=t,u assignor=range
        write member g a (t,u) assignor range
        write epoch g 2
        write target g a [t:0.1 u:0.1]
        write target g epoch 2
        write current g a 0->2 stable [t:0.1 u:0.1]
        a: a epoch 2 [t:0.1 u:0.1]
        > b = beat g b 0 topics=t
        write member g b (t)
        write epoch g 3
        write target g a [t:0 u:0.1]
        write target g b [t:1]
        write target g epoch 3
        write current g b 0->3 unreleased []
        b: b epoch 3 []
        > a = beat g a 2 owned=t:0.1,u:0.1 topics=u
        write member g a (u) assignor range
        write epoch g 4
        write target g a [u:0.1]
        write target g b [t:0.1]
        write target g epoch 4
        write current g a 2->2 unrevoked [u:0.1] revoking [t:0.1]
        a: a epoch 2 [u:0.1]
        > d = describe-consumer g
        d: g Reconciling 4/4 range, a at 2 [t:0.1 u:0.1]->[u:0.1], b at 3 []->[t:0.1]
        > a = beat g a 2 owned=u:0.1
        write current g a 2->4 stable [u:0.1]
        a: a epoch 4
        > b = beat g b 3
        write current g b 3->4 stable [t:0.1]
        b: b epoch 4 [t:0.1]
        > d = describe-consumer g
        d: g Stable 4/4 range, a at 4 [u:0.1]->[u:0.1], b at 4 [t:0.1]->[t:0.1]
        """,
    )


def test_static_members() -> None:
    check(
        """
        > topic t 2
        > a = beat g a 0 topics=t instance=i
        write member g a (t) instance i
        write epoch g 2
        write target g a [t:0.1]
        write target g epoch 2
        write current g a 0->2 stable [t:0.1]
        a: a epoch 2 [t:0.1]
        > x = beat g x 0 topics=t instance=i
        x: UNRELEASED_INSTANCE_ID
        > x = beat g x 2 instance=i
        x: FENCED_INSTANCE_ID
        > x = beat g x 2 instance=k
        x: UNKNOWN_MEMBER_ID
        > x = beat g x -2 instance=i
        x: FENCED_INSTANCE_ID
        # It leaves for a while: its partitions are kept for whoever comes back with its instance id.
        > a = beat g a -2 instance=i
        write current g a 0->-2 stable [t:0.1]
        a: a epoch -2
        > b = beat g b 0 topics=t
        write member g b (t)
        write epoch g 3
        write target g a [t:0]
        write target g b [t:1]
        write target g epoch 3
        write current g b 0->3 unreleased []
        b: b epoch 3 []
        > x = beat g x 0 topics=t instance=i
        write current g a gone
        write target g a gone
        write member g a gone
        write member g x (t) instance i
        write target g x [t:0]
        write current g x 0->0 stable [t:0.1]
        write current g x 0->3 stable [t:0]
        x: x epoch 3 [t:0]
        > a = beat g a 2 instance=i
        a: FENCED_INSTANCE_ID
        > x = beat g x 3 instance=i owned=t:0
        x: x epoch 3
        > b = beat g b 3
        write current g b 3->3 stable [t:1]
        b: b epoch 3 [t:1]
        # When it does not come back, its session ends like any other.
        > x = beat g x -2 instance=i
        write current g x 0->-2 stable [t:0]
        x: x epoch -2
        > wait 44000
        > b = beat g b 3
        b: b epoch 3
        > wait 1000
        write current g x gone
        write target g x gone
        write member g x gone
        write epoch g 4
        > b = beat g b 3
        write target g b [t:0.1]
        write target g epoch 4
        write current g b 3->4 stable [t:0.1]
        b: b epoch 4 [t:0.1]
        """,
    )


def test_patterns() -> None:
    check(
        """
        > topic p-1 1
        > topic other 1
        > a = beat g a 0 regex=p-.*
        write member g a () regex p-.*
        write current g a 0->1 stable []
        a: a epoch 1 []
        > wait 0
        write regex g p-.* [p-1]
        write epoch g 2
        > a = beat g a 1
        write target g a [p-1:0]
        write target g epoch 2
        write current g a 1->2 stable [p-1:0]
        a: a epoch 2 [p-1:0]
        > topic p-2 1
        # Not again within ten seconds.
        > a = beat g a 2
        a: a epoch 2
        > wait 10001
        > a = beat g a 2
        a: a epoch 2
        > wait 0
        write regex g p-.* [p-1 p-2]
        write epoch g 3
        > a = beat g a 2
        write target g a [p-1:0 p-2:0]
        write target g epoch 3
        write current g a 2->3 stable [p-1:0 p-2:0]
        a: a epoch 3 [p-1:0 p-2:0]
        # A pattern that the group knows already counts at once.
        > b = beat g b 0 regex=p-.*
        write member g b () regex p-.*
        write epoch g 4
        write target g a [p-1:0]
        write target g b [p-2:0]
        write target g epoch 4
        write current g b 0->4 unreleased []
        b: b epoch 4 []
        > b = beat g b 4
        write current g b 4->4 unreleased []
        b: b epoch 4
        > reload
        > d = describe-consumer g
        d: g Reconciling 4/4 uniform, a at 3 [p-1:0 p-2:0]->[p-1:0], b at 4 []->[p-2:0]
        > b = beat g b -1
        write current g b gone
        write target g b gone
        write member g b gone
        write epoch g 5
        b: b epoch -1
        > a = beat g a 3 regex=[
        a: INVALID_REGULAR_EXPRESSION
        > a = beat g a 3 owned=p-2:0 regex=
        write member g a ()
        write regex g p-.* gone
        write epoch g 6
        write target g a []
        write target g epoch 6
        write current g a 3->3 unrevoked [] revoking [p-1:0 p-2:0]
        a: a epoch 3 []
        > d = describe-consumer g
        d: g Reconciling 6/6 uniform, a at 3 [p-1:0 p-2:0]->[]
        """,
    )


def test_a_pattern_that_matches_nothing_yet_is_looked_at_again() -> None:
    check(
        """
        > a = beat g a 0 regex=p-.*
        write member g a () regex p-.*
        write current g a 0->1 stable []
        a: a epoch 1 []
        > wait 0
        write regex g p-.* []
        > a = beat g a 1
        a: a epoch 1
        > topic p-1 1
        > wait 10001
        > a = beat g a 1
        a: a epoch 1
        > wait 0
        write regex g p-.* [p-1]
        write epoch g 2
        > a = beat g a 1
        write target g a [p-1:0]
        write target g epoch 2
        write current g a 1->2 stable [p-1:0]
        a: a epoch 2 [p-1:0]
        """,
    )


def test_commits_of_members_count_for_what_they_have() -> None:
    check(
        PAIR
        + """
        > c = commit g t-0=1 member=a generation=2
        write offset g t-0 1
        c: t-0 NONE
        > c = commit g t-0=1 member=a generation=3
        c: STALE_MEMBER_EPOCH
        > c = commit g t-0=1 member=x generation=2
        c: UNKNOWN_MEMBER_ID
        > c = commit g t-0=1 member=a generation=2 version=8
        c: UNSUPPORTED_VERSION
        > c = commit g t-0=1
        c: UNKNOWN_MEMBER_ID
        > a = beat g a 2 owned=t:0.1
        write current g a 2->3 stable [t:0.1]
        a: a epoch 3 [t:0.1]
        # In its new epoch, a commit of the old one still counts for partitions that it had then.
        > c = commit g t-0=2 member=a generation=2
        write offset g t-0 2
        c: t-0 NONE
        > c = commit g t-3=2 member=a generation=2
        c: STALE_MEMBER_EPOCH
        > b = beat g b 3
        write current g b 3->3 stable [t:2.3]
        b: b epoch 3 [t:2.3]
        > c = commit g t-3=2 member=b generation=2
        c: STALE_MEMBER_EPOCH
        > c = commit g t-3=2 member=b generation=3
        write offset g t-3 2
        c: t-3 NONE
        > c = delete-offsets g t-0
        c: t-0 GROUP_SUBSCRIBED_TO_TOPIC
        > c = delete g
        c: g NON_EMPTY_GROUP
        > a = beat g a -1
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 4
        a: a epoch -1
        > b = beat g b -1
        write current g b gone
        write target g b gone
        write member g b gone
        write epoch g 5
        b: b epoch -1
        > c = commit g t-0=3
        write offset g t-0 3
        c: t-0 NONE
        > c = delete g
        write offset g t-0 gone
        write offset g t-3 gone
        write target g gone
        write partition-metadata g gone
        write epoch g gone
        c: g NONE
        > d = describe-consumer g
        d: g GROUP_ID_NOT_FOUND
        """,
    )


def test_an_empty_group_expires_with_its_offsets() -> None:
    check(
        """
        > a = beat g a 0
        write member g a ()
        write current g a 0->1 stable []
        a: a epoch 1 []
        > c = commit g t-0=1 member=a generation=1
        write offset g t-0 1
        c: t-0 NONE
        > a = beat g a -1
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 2
        a: a epoch -1
        > expire
        > wait 3600000
        > expire
        write offset g t-0 gone
        write target g gone
        write partition-metadata g gone
        write epoch g gone
        > list
        : nothing
        """,
    )
