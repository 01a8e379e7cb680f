"""Groups with members of both protocols, transition by transition: upgrades, downgrades, and members that change over.

The scripts are those of test_consumer.
"""

from __future__ import annotations

from support.consumer_play import PAIR, check

# A classic group of one.
OLD = """
    > topic t 4
    > a = classic-join g topics=t version=3
    write group g generation 0 None leader None
    > wait 3000
    a: m-1 generation 1 range leader m-1 members m-1(...)
    > a = sync g member=m-1 generation=1 assign=m-1:[t:0.1.2.3]
    write group g generation 1 range leader m-1 m-1(...|[t:0.1.2.3])
    a: assignment [t:0.1.2.3]
"""


def test_a_classic_group_is_upgraded_by_the_first_new_member() -> None:
    check(
        OLD
        + """
        > n = beat g n 0 topics=t
        write group g gone
        write member g m-1 (t) classic
        write epoch g 1
        write target g m-1 [t:0.1.2.3]
        write target g epoch 1
        write current g m-1 1->1 stable [t:0.1.2.3]
        write member g n (t)
        write epoch g 2
        write target g m-1 [t:0.1]
        write target g n [t:2.3]
        write target g epoch 2
        write current g n 0->2 unreleased []
        n: n epoch 2 []
        > d = describe-consumer g
        d: g Reconciling 2/2 uniform, m-1 at 1 [t:0.1.2.3]->[t:0.1] classic, n at 2 []->[t:2.3]
        > c = commit g t-0=6 member=m-1 generation=1 version=8
        write offset g t-0 6
        c: t-0 NONE
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        > a = classic-join g topics=t member=m-1 owned=t:0.1.2.3
        write member g m-1 (t) classic
        write current g m-1 1->1 unrevoked [t:0.1] revoking [t:2.3]
        a: m-1 generation 1 range leader nobody
        > a = sync g member=m-1 generation=1
        a: assignment [t:0.1]
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        > a = classic-join g topics=t member=m-1 owned=t:0.1
        write member g m-1 (t) classic
        write current g m-1 1->2 stable [t:0.1]
        a: m-1 generation 2 range leader nobody
        > a = sync g member=m-1 generation=2
        a: assignment [t:0.1]
        > a = heartbeat g member=m-1 generation=2
        a: NONE
        > n = beat g n 2
        write current g n 2->2 stable [t:2.3]
        n: n epoch 2 [t:2.3]
        > reload
        > d = describe-consumer g
        d: g Stable 2/2 uniform, m-1 at 2 [t:0.1]->[t:0.1] classic, n at 2 [t:2.3]->[t:2.3]
        # The last classic member leaves.
        > a = leave g member=m-1
        write current g m-1 gone
        write target g m-1 gone
        write member g m-1 gone
        write epoch g 3
        a: m-1 NONE
        > n = beat g n 2
        write target g n [t:0.1.2.3]
        write target g epoch 3
        write current g n 2->3 stable [t:0.1.2.3]
        n: n epoch 3 [t:0.1.2.3]
        """,
    )


def test_requests_that_wait_are_answered_when_their_group_is_upgraded() -> None:
    check(
        OLD
        + """
        > b = classic-join g topics=t version=3
        > n = beat g n 0 topics=t
        write group g gone
        write member g m-1 (t) classic
        write member g m-2 (t) classic
        write epoch g 1
        write target g m-1 [t:0.1.2.3]
        write target g m-2 []
        write target g epoch 1
        write current g m-1 1->1 stable [t:0.1.2.3]
        write current g m-2 1->1 stable []
        write member g n (t)
        write epoch g 2
        write target g m-1 [t:0.1]
        write target g m-2 [t:2]
        write target g n [t:3]
        write target g epoch 2
        write current g n 0->2 unreleased []
        b: REBALANCE_IN_PROGRESS m-2
        n: n epoch 2 []
        > wait 3000
        > a = heartbeat g member=m-1 generation=1
        a: REBALANCE_IN_PROGRESS
        """,
    )


def test_a_rebalance_that_an_upgrade_ends_is_made_up_for() -> None:
    """A static member that changes over brings nothing new; who was about to join gets its share all the same."""
    check(
        """
        > topic t 4
        > a = classic-join g topics=t version=5 instance=i
        write group g generation 0 None leader None
        > wait 3000
        a: i-1 generation 1 range leader i-1 members i-1(...)
        > a = sync g member=i-1 generation=1 assign=i-1:[t:0.1.2.3]
        write group g generation 1 range leader i-1 i-1(...|[t:0.1.2.3])
        a: assignment [t:0.1.2.3]
        > b = classic-join g topics=t version=3
        > a = beat g a 0 topics=t instance=i
        write group g gone
        write member g i-1 (t) instance i classic
        write member g m-2 (t) classic
        write epoch g 1
        write target g i-1 [t:0.1.2.3]
        write target g m-2 []
        write target g epoch 1
        write current g i-1 1->1 stable [t:0.1.2.3]
        write current g m-2 1->1 stable []
        write current g i-1 gone
        write target g i-1 gone
        write member g i-1 gone
        write member g a (t) instance i classic
        write target g a [t:0.1.2.3]
        write current g a 0->0 stable [t:0.1.2.3]
        write member g a (t) instance i
        write epoch g 2
        write target g m-2 [t:2.3]
        write target g a [t:0.1]
        write target g epoch 2
        write current g a 0->2 stable [t:0.1]
        b: REBALANCE_IN_PROGRESS m-2
        a: a epoch 2 [t:0.1]
        > b = classic-join g topics=t member=m-2
        write current g m-2 1->2 stable [t:2.3]
        b: m-2 generation 2 range leader nobody
        > b = sync g member=m-2 generation=2
        b: assignment [t:2.3]
        """,
    )


def test_a_consumer_group_is_downgraded_when_the_last_new_member_leaves() -> None:
    check(
        OLD
        + """
        > n = beat g n 0 topics=t
        write group g gone
        write member g m-1 (t) classic
        write epoch g 1
        write target g m-1 [t:0.1.2.3]
        write target g epoch 1
        write current g m-1 1->1 stable [t:0.1.2.3]
        write member g n (t)
        write epoch g 2
        write target g m-1 [t:0.1]
        write target g n [t:2.3]
        write target g epoch 2
        write current g n 0->2 unreleased []
        n: n epoch 2 []
        > n = beat g n -1
        write current g m-1 gone
        write current g n gone
        write target g m-1 gone
        write target g n gone
        write target g gone
        write member g m-1 gone
        write member g n gone
        write partition-metadata g gone
        write epoch g gone
        write group g generation 2 range leader m-1 m-1(...|[t:0.1])
        n: n epoch -1
        > a = heartbeat g member=m-1 generation=2
        a: REBALANCE_IN_PROGRESS
        > a = classic-join g topics=t member=m-1
        a: m-1 generation 3 range leader m-1 members m-1(...)
        > reload
        > a = heartbeat g member=m-1 generation=2
        a: NONE
        """,
    )


def test_a_static_member_is_replaced_by_one_of_the_other_protocol() -> None:
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
        > b = beat g b 0 topics=t instance=k
        write member g b (t) instance k
        write epoch g 3
        write target g a [t:0]
        write target g b [t:1]
        write target g epoch 3
        write current g b 0->3 unreleased []
        b: b epoch 3 []
        > b = classic-join g topics=t instance=k
        write current g b gone
        write target g b gone
        write member g b gone
        write member g 1 (t) instance k
        write target g 1 [t:1]
        write current g 1 0->0 unreleased []
        write member g 1 (t) instance k classic
        write current g 1 0->3 unreleased []
        b: 1 generation 3 range leader nobody
        > d = describe-consumer g
        d: g Reconciling 3/3 uniform, a at 2 [t:0.1]->[t:0], 1 at 3 []->[t:1] classic
        > a = classic-join g topics=t instance=i
        write current g a gone
        write target g a gone
        write member g a gone
        write member g 2 (t) instance i
        write target g 2 [t:0]
        write current g 2 0->0 stable [t:0.1]
        write member g 2 (t) instance i classic
        write current g 2 0->3 stable [t:0]
        write current g 1 gone
        write current g 2 gone
        write target g 1 gone
        write target g 2 gone
        write target g gone
        write member g 1 gone
        write member g 2 gone
        write partition-metadata g gone
        write epoch g gone
        write group g generation 3 range leader 1 1(...|[t:1]) 2(...|[t:0])
        a: 2 generation 3 range leader nobody
        > d = describe-consumer g
        d: g GROUP_ID_NOT_FOUND
        > x = describe g
        x: g Stable consumer range 1(...|[t:1]) 2(...|[t:0])
        > n = beat g n 0 topics=t instance=i
        write group g gone
        write member g 1 (t) instance k classic
        write member g 2 (t) instance i classic
        write epoch g 3
        write target g 1 [t:1]
        write target g 2 [t:0]
        write target g epoch 3
        write current g 1 3->3 stable [t:1]
        write current g 2 3->3 stable [t:0]
        write current g 2 gone
        write target g 2 gone
        write member g 2 gone
        write member g n (t) instance i classic
        write target g n [t:0]
        write current g n 0->0 stable [t:0]
        write member g n (t) instance i
        write current g n 0->3 stable [t:0]
        n: n epoch 3 [t:0]
        > d = describe-consumer g
        d: g Stable 3/3 uniform, 1 at 3 [t:1]->[t:1] classic, n at 3 [t:0]->[t:0]
        """,
    )


def test_groups_stay_what_they_are_when_migration_is_disabled() -> None:
    check(
        OLD
        + """
        > n = beat g n 0 topics=t
        n: GROUP_ID_NOT_FOUND
        > m = beat h m 0 topics=t
        write member h m (t)
        write epoch h 2
        write target h m [t:0.1.2.3]
        write target h epoch 2
        write current h m 0->2 stable [t:0.1.2.3]
        m: m epoch 2 [t:0.1.2.3]
        > x = classic-join h topics=t version=3
        x: INCONSISTENT_GROUP_PROTOCOL
        """,
        group_consumer_migration_policy="DISABLED",
    )


def test_classic_members_stay_in_a_group_that_may_not_be_downgraded() -> None:
    check(
        OLD
        + """
        > n = beat g n 0 topics=t
        write group g gone
        write member g m-1 (t) classic
        write epoch g 1
        write target g m-1 [t:0.1.2.3]
        write target g epoch 1
        write current g m-1 1->1 stable [t:0.1.2.3]
        write member g n (t)
        write epoch g 2
        write target g m-1 [t:0.1]
        write target g n [t:2.3]
        write target g epoch 2
        write current g n 0->2 unreleased []
        n: n epoch 2 []
        > a = classic-join g topics=t member=m-1 owned=
        write current g m-1 1->2 stable [t:0.1]
        a: m-1 generation 2 range leader nobody
        > a = sync g member=m-1 generation=2
        a: assignment [t:0.1]
        > n = beat g n -1
        write current g n gone
        write target g n gone
        write member g n gone
        write epoch g 3
        write target g m-1 [t:0.1.2.3]
        write target g epoch 3
        n: n epoch -1
        > a = heartbeat g member=m-1 generation=2
        a: REBALANCE_IN_PROGRESS
        > d = describe-consumer g
        d: g Reconciling 3/3 uniform, m-1 at 2 [t:0.1]->[t:0.1.2.3] classic
        """,
        group_consumer_migration_policy="UPGRADE",
    )


def test_a_group_of_another_kind_is_not_upgraded() -> None:
    check(
        """
        > a = join g version=3 type=connect
        write group g generation 0 None leader None
        > n = beat g n 0 topics=t
        n: GROUP_ID_NOT_FOUND
        > b = join h version=3 protocols=range:junk
        write group h generation 0 None leader None
        > wait 3000
        a: m-1 generation 1 range leader m-1 members m-1()
        b: m-2 generation 1 range leader m-2 members m-2(junk)
        > n = beat h n 0 topics=t
        n: GROUP_ID_NOT_FOUND
        """,
    )


def test_a_classic_member_has_a_limited_time_to_sync() -> None:
    check(
        PAIR
        + """
        > c = classic-join g topics=t member=c session=100000 rebalance=30000
        write member g c (t) classic
        write epoch g 4
        write target g b [t:2]
        write target g c [t:3]
        write target g epoch 4
        write current g c 0->4 unreleased []
        c: c generation 4 range leader nobody
        > wait 30000
        write current g c gone
        write target g c gone
        write member g c gone
        write epoch g 5
        """,
    )


def test_a_classic_member_has_a_limited_time_to_join_again() -> None:
    check(
        PAIR
        + """
        > c = classic-join g topics=t member=c session=100000 rebalance=30000
        write member g c (t) classic
        write epoch g 4
        write target g b [t:2]
        write target g c [t:3]
        write target g epoch 4
        write current g c 0->4 unreleased []
        c: c generation 4 range leader nobody
        > c = sync g member=c generation=4
        c: assignment []
        > a = beat g a -1
        write current g a gone
        write target g a gone
        write member g a gone
        write epoch g 5
        a: a epoch -1
        > b = beat g b 3
        write target g b [t:0.2]
        write target g c [t:1.3]
        write target g epoch 5
        write current g b 3->5 stable [t:0.2]
        b: b epoch 5 [t:0.2]
        > c = heartbeat g member=c generation=4
        c: REBALANCE_IN_PROGRESS
        > wait 20000
        > c = heartbeat g member=c generation=4
        c: REBALANCE_IN_PROGRESS
        > c = sync g member=c generation=4
        c: REBALANCE_IN_PROGRESS
        > wait 9999
        > b = beat g b 5
        b: b epoch 5
        > wait 1
        write current g c gone
        write target g c gone
        write member g c gone
        write epoch g 6
        """,
    )


def test_an_empty_group_changes_its_kind() -> None:
    check(
        """
        > topic t 1
        > a = classic-join g topics=t version=3
        write group g generation 0 None leader None
        > wait 3000
        a: m-1 generation 1 range leader m-1 members m-1(...)
        > a = leave g member=m-1
        write group g generation 2 None leader None
        a: m-1 NONE
        > n = beat g n 0 topics=t
        write group g gone
        write member g n (t)
        write epoch g 2
        write target g n [t:0]
        write target g epoch 2
        write current g n 0->2 stable [t:0]
        n: n epoch 2 [t:0]
        > n = beat g n -1
        write current g n gone
        write target g n gone
        write member g n gone
        write epoch g 3
        n: n epoch -1
        > a = classic-join g topics=t member=m-1
        a: UNKNOWN_MEMBER_ID m-1
        > a = classic-join g topics=t version=3
        write target g gone
        write partition-metadata g gone
        write epoch g gone
        write group g generation 0 None leader None
        """,
    )
