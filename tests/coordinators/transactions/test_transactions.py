"""Transactions, transition by transition: scripts without a clock (see support.transaction_transcript)."""

from __future__ import annotations

import pytest
from pylogd.coordinators.transactions.transaction import TxnState
from pylogd.coordinators.transactions.transactions import TransactionSettings
from pylogd.protocol.errors import ErrorCode, KafkaError
from support.transaction_transcript import SETTINGS, check

NEW = """
    > init x
    write x Empty 1/0 tv0
    ok 1/0
"""

# The first generation of the protocol: partitions are added by the client, the epoch stays.
CLASSIC = f"""{NEW}
    > add x 1/0 t-0
    write x Ongoing 1/0 t-0 since 0 tv0
    t-0:NONE
"""

# The second: the brokers add partitions, every end raises the epoch.
SECOND = f"""{NEW}
    > add x 1/0 t-0 version=2
    write x Ongoing 1/0 t-0 since 0 tv2
    t-0:NONE
"""


def test_commit() -> None:
    check(
        CLASSIC
        + """
        > wait 10
        > add x 1/0 t-1 u-0
        write x Ongoing 1/0 t-0 t-1 u-0 since 0 tv0
        t-1:NONE u-0:NONE
        > add x 1/0 t-1
        t-1:NONE
        > commit x 1/0
        write x PrepareCommit 1/0 t-0 t-1 u-0 since 0 tv0
        markers x: PrepareCommit 1/0 t-0 t-1 u-0
        ok
        > marked x
        write x CompleteCommit 1/0 since 0 tv0
        > commit x 1/0
        ok
        > abort x 1/0
        INVALID_TXN_STATE
        > wait 10
        > add x 1/0 t-5
        write x Ongoing 1/0 t-5 since 20 tv0
        t-5:NONE
        """
    )


def test_abort() -> None:
    check(
        CLASSIC
        + """
        > abort x 1/0
        write x PrepareAbort 1/0 t-0 since 0 tv0
        markers x: PrepareAbort 1/0 t-0
        ok
        > marked x
        write x CompleteAbort 1/0 since 0 tv0
        > abort x 1/0
        ok
        > commit x 1/0
        INVALID_TXN_STATE
        """
    )


def test_nothing_changes_while_markers_are_written() -> None:
    check(
        CLASSIC
        + """
        > commit x 1/0
        write x PrepareCommit 1/0 t-0 since 0 tv0
        markers x: PrepareCommit 1/0 t-0
        ok
        > commit x 1/0
        CONCURRENT_TRANSACTIONS
        > abort x 1/0
        CONCURRENT_TRANSACTIONS
        > add x 1/0 t-1
        CONCURRENT_TRANSACTIONS
        > verify x 1/0 t-0
        CONCURRENT_TRANSACTIONS
        > init x
        CONCURRENT_TRANSACTIONS
        > commit x 1/1
        PRODUCER_FENCED
        > add x 1/1 t-0
        CONCURRENT_TRANSACTIONS
        """
    )


def test_who_does_not_belong() -> None:
    check(
        CLASSIC
        + """
        > add y 1/0 t-0
        INVALID_PRODUCER_ID_MAPPING
        > add x 2/0 t-0
        INVALID_PRODUCER_ID_MAPPING
        > add x 1/1 t-0
        PRODUCER_FENCED
        > verify y 1/0 t-0
        INVALID_PRODUCER_ID_MAPPING
        > verify x 2/0 t-0
        INVALID_PRODUCER_ID_MAPPING
        > verify x 1/1 t-0
        PRODUCER_FENCED
        > verify x 1/0 t-0 t-1
        t-0:NONE t-1:TRANSACTION_ABORTABLE
        > commit y 1/0
        INVALID_PRODUCER_ID_MAPPING
        > commit x 2/0
        INVALID_PRODUCER_ID_MAPPING
        > commit x 1/1
        PRODUCER_FENCED
        > commit x 1/1 version=2
        PRODUCER_FENCED
        """
    )


def test_without_a_transaction_the_classic_protocol_ends_nothing() -> None:
    check(
        NEW
        + """
        > commit x 1/0
        INVALID_TXN_STATE
        > abort x 1/0
        INVALID_TXN_STATE
        """
    )


# -- the second generation


def test_every_end_raises_the_epoch() -> None:
    check(
        SECOND
        + """
        > commit x 1/0 version=2
        write x PrepareCommit 1/1 t-0 since 0 tv2
        markers x: PrepareCommit 1/1 t-0
        ok 1/1
        > add x 1/1 t-0 version=2
        CONCURRENT_TRANSACTIONS
        > marked x
        write x CompleteCommit 1/1 since 0 tv2
        > wait 5
        > add x 1/1 t-0 version=2
        write x Ongoing 1/1 t-0 since 5 tv2
        t-0:NONE
        > abort x 1/1 version=2
        write x PrepareAbort 1/2 t-0 since 5 tv2
        markers x: PrepareAbort 1/2 t-0
        ok 1/2
        > marked x
        write x CompleteAbort 1/2 since 5 tv2
        """
    )


COMPLETE_COMMIT = f"""{SECOND}
    > commit x 1/0 version=2
    write x PrepareCommit 1/1 t-0 since 0 tv2
    markers x: PrepareCommit 1/1 t-0
    ok 1/1
    > marked x
    write x CompleteCommit 1/1 since 0 tv2
"""
COMPLETE_ABORT = f"""{SECOND}
    > abort x 1/0 version=2
    write x PrepareAbort 1/1 t-0 since 0 tv2
    markers x: PrepareAbort 1/1 t-0
    ok 1/1
    > marked x
    write x CompleteAbort 1/1 since 0 tv2
"""
BUMPED = """
    write x PrepareAbort {} since 0 tv2
    markers x: PrepareAbort {}
    ok {}
"""


@pytest.mark.parametrize(
    ("before", "event", "outcome"),
    [
        # The table in Kafka's TransactionCoordinator: a retry comes with the epoch before the current one.
        (NEW, "abort x 1/-1", "PRODUCER_FENCED"),
        (NEW, "commit x 1/-1", "PRODUCER_FENCED"),
        (NEW, "commit x 1/0", "INVALID_TXN_STATE"),
        (NEW, "abort x 1/0", BUMPED.format("1/1", "1/1", "1/1")),
        (COMPLETE_ABORT, "abort x 1/0", "ok 1/1"),
        (COMPLETE_ABORT, "commit x 1/0", "INVALID_TXN_STATE"),
        (COMPLETE_ABORT, "commit x 1/1", "INVALID_TXN_STATE"),
        (COMPLETE_ABORT, "abort x 1/1", BUMPED.format("1/2", "1/2", "1/2")),
        (COMPLETE_COMMIT, "commit x 1/0", "ok 1/1"),
        (COMPLETE_COMMIT, "abort x 1/0", "INVALID_TXN_STATE"),
        (COMPLETE_COMMIT, "commit x 1/1", "INVALID_TXN_STATE"),
        (COMPLETE_COMMIT, "abort x 1/1", BUMPED.format("1/2", "1/2", "1/2")),
        (COMPLETE_COMMIT, "abort x 1/-1", "PRODUCER_FENCED"),
        (COMPLETE_COMMIT, "commit x 1/2", "PRODUCER_FENCED"),
    ],
)
def test_end_after_the_end(before: str, event: str, outcome: str) -> None:
    check(f"{before}\n> {event} version=2\n{outcome}")


def test_a_retried_end_hears_concurrent_transactions_until_it_is_complete() -> None:
    check(
        SECOND
        + """
        > commit x 1/0 version=2
        write x PrepareCommit 1/1 t-0 since 0 tv2
        markers x: PrepareCommit 1/1 t-0
        ok 1/1
        > commit x 1/0 version=2
        CONCURRENT_TRANSACTIONS
        > marked x
        write x CompleteCommit 1/1 since 0 tv2
        > commit x 1/0 version=2
        ok 1/1
        """
    )


# -- identities


def test_a_new_producer_fences_the_one_before() -> None:
    check(
        NEW
        + """
        > init x
        write x Empty 1/1 tv0
        ok 1/1
        > add x 1/0 t-0
        PRODUCER_FENCED
        > init x expect=1/0
        PRODUCER_FENCED
        """
    )


def test_a_producer_recovers_and_its_retry_gets_the_same_epoch() -> None:
    check(
        NEW
        + """
        > init x expect=1/0
        write x Empty 1/1 tv0
        ok 1/1
        > init x expect=1/0
        write x Empty 1/1 tv0
        ok 1/1
        > init x expect=7/0
        PRODUCER_FENCED
        > reload
        > init x expect=1/0
        PRODUCER_FENCED
        """
    )


def test_a_forgotten_producer_recovers_with_a_new_id() -> None:
    check(
        """
        > init x expect=9/4
        write x Empty 1/0 tv0
        ok 1/0
        """
    )


def test_an_open_transaction_is_aborted_before_a_new_producer_starts() -> None:
    check(
        CLASSIC
        + """
        > init x
        write x PrepareAbort 1/1 t-0 since 0 tv2
        markers x: PrepareAbort 1/1 t-0
        CONCURRENT_TRANSACTIONS
        > init x
        CONCURRENT_TRANSACTIONS
        > marked x
        write x CompleteAbort 1/1 since 0 tv2
        > init x
        write x Empty 1/2 tv2
        ok 1/2
        > commit x 1/0
        PRODUCER_FENCED
        """
    )


def test_in_a_cluster_of_the_first_generation_fencing_counts_as_no_version() -> None:
    check(
        CLASSIC
        + """
        > init x
        write x PrepareAbort 1/1 t-0 since 0 tv0
        markers x: PrepareAbort 1/1 t-0
        CONCURRENT_TRANSACTIONS
        > marked x
        write x CompleteAbort 1/1 since 0 tv0
        > init x
        write x Empty 1/2 tv0
        ok 1/2
        """,
        version=1,
    )


# -- epochs run out


def test_init_rotates_the_producer_id_when_epochs_run_out() -> None:
    check(
        NEW
        + """
        > epoch x 32765
        > init x
        write x Empty 1/32766 tv0
        ok 1/32766
        > init x
        write x Empty 2/0 tv0
        ok 2/0
        """
    )


def test_a_recovering_producer_at_its_last_epoch_gets_a_new_id_and_may_retry() -> None:
    check(
        NEW
        + """
        > epoch x 32766
        > init x expect=1/32766
        write x Empty 2/0 tv0
        ok 2/0
        > init x expect=1/32766
        write x Empty 2/0 tv0
        ok 2/0
        > init x expect=1/32765
        PRODUCER_FENCED
        """
    )


def test_an_end_at_the_last_epoch_goes_on_with_a_new_id() -> None:
    check(
        SECOND
        + """
        > epoch x 32766
        > commit x 1/32766 version=2
        write x PrepareCommit 1/32767 next 2 t-0 since 0 tv2
        markers x: PrepareCommit 1/32767 t-0
        ok 2/0
        > add x 2/0 t-0 version=2
        CONCURRENT_TRANSACTIONS
        > reload
        markers x: PrepareCommit 1/32767 t-0
        > marked x
        write x CompleteCommit 2/0 since 0 tv2
        > commit x 1/32766 version=2
        ok 2/0
        > add x 1/32767 t-0 version=2
        INVALID_PRODUCER_ID_MAPPING
        > add x 2/0 t-0 version=2
        write x Ongoing 2/0 t-0 since 0 tv2
        t-0:NONE
        """
    )


def test_fencing_at_the_last_epoch_of_the_first_generation() -> None:
    check(
        CLASSIC
        + """
        > epoch x 32766
        > init x
        write x PrepareAbort 1/32767 t-0 since 0 tv0
        markers x: PrepareAbort 1/32767 t-0
        CONCURRENT_TRANSACTIONS
        > marked x
        write x CompleteAbort 1/32767 since 0 tv0
        > init x
        write x Empty 2/0 tv0
        ok 2/0
        """,
        version=1,
    )


# -- time, and coordinators that come and go


def test_a_transaction_that_hangs_is_aborted_and_its_producer_fenced() -> None:
    check(
        CLASSIC
        + """
        > wait 5000
        > wait 1000
        write x PrepareAbort 1/1 t-0 since 0 tv2
        markers x: PrepareAbort 1/1 t-0
        > wait 5000
        > marked x
        write x CompleteAbort 1/1 since 0 tv2
        > commit x 1/0
        PRODUCER_FENCED
        """
    )


def test_activity_does_not_extend_a_transaction() -> None:
    check(
        CLASSIC
        + """
        > wait 4500
        > add x 1/0 t-1
        write x Ongoing 1/0 t-0 t-1 since 0 tv0
        t-1:NONE
        > wait 1500
        write x PrepareAbort 1/1 t-0 t-1 since 0 tv2
        markers x: PrepareAbort 1/1 t-0 t-1
        """
    )


def test_idle_ids_are_forgotten() -> None:
    play = check(
        NEW
        + """
        > init y
        write y Empty 2/0 tv0
        ok 2/0
        > add y 2/0 t-0
        write y Ongoing 2/0 t-0 since 0 tv0
        t-0:NONE
        > commit y 2/0
        write y PrepareCommit 2/0 t-0 since 0 tv0
        markers y: PrepareCommit 2/0 t-0
        ok
        > wait 3600000
        write x gone
        > marked y
        write y CompleteCommit 2/0 since 0 tv0
        > reload
        > wait 3600000
        write y gone
        > add x 1/0 t-0
        INVALID_PRODUCER_ID_MAPPING
        > init x
        write x Empty 3/0 tv0
        ok 3/0
        > reload
        """
    )
    assert list(play.state.transactions) == ["x"]


def test_a_new_coordinator_carries_out_what_was_decided() -> None:
    play = check(
        SECOND
        + """
        > abort x 1/0 version=2
        write x PrepareAbort 1/1 t-0 since 0 tv2
        markers x: PrepareAbort 1/1 t-0
        ok 1/1
        > reload
        markers x: PrepareAbort 1/1 t-0
        > marked x
        write x CompleteAbort 1/1 since 0 tv2
        > reload
        """
    )
    assert play.state.transactions["x"].state is TxnState.COMPLETE_ABORT


def test_a_new_coordinator_goes_on_with_what_is_open() -> None:
    check(
        CLASSIC
        + """
        > reload
        > add x 1/0 t-1
        write x Ongoing 1/0 t-0 t-1 since 0 tv0
        t-1:NONE
        > commit x 1/0
        write x PrepareCommit 1/0 t-0 t-1 since 0 tv0
        markers x: PrepareCommit 1/0 t-0 t-1
        ok
        """
    )


def test_a_late_completion_changes_nothing() -> None:
    play = check(COMPLETE_COMMIT + "> marked x")
    play.run(lambda effects: play.state.complete(effects, "gone", 1, 0))
    assert len(play.written) == 4


@pytest.mark.parametrize(("timeout_ms", "fits"), [(1, True), (60_000, True), (0, False), (-1, False), (60_001, False)])
def test_timeouts(timeout_ms: int, fits: bool) -> None:
    settings: TransactionSettings = SETTINGS
    if fits:
        settings.check_timeout(timeout_ms)
    else:
        with pytest.raises(KafkaError) as refusal:
            settings.check_timeout(timeout_ms)
        assert refusal.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_records_of_a_cluster_before_flexible_ones() -> None:
    play = check(CLASSIC, version=0)
    assert [value[:2] for _, value in play.written if value is not None] == [b"\0\0", b"\0\0"]
    assert [value[:2] for _, value in check(CLASSIC, version=1).written if value is not None] == [b"\0\1", b"\0\1"]
