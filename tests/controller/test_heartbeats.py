"""The table of heartbeats follows what was appended: an append that fails leaves it as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pylogd.controller.heartbeats import Heartbeats
from pylogd.controller.raft.log_view import LogFull
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import broker_heartbeat, unregister_broker
from pylogd.runtime.clock import ManualClock
from support.controllers import RunningController, registration


def table(heartbeats: Heartbeats) -> dict[int, tuple[int, bool, int, int]]:
    """What is known of every registered broker."""
    return {
        broker_id: (tracked.epoch, tracked.fenced, tracked.metadata_offset, tracked.shutdown_offset)
        for broker_id, tracked in heartbeats._brokers.items()
    }


def beat(broker_id: int, epoch: int, offset: int, **fields: Any) -> broker_heartbeat.BrokerHeartbeatRequest:
    return broker_heartbeat.BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset, **fields
    )


REFUSALS = [
    LogFull(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"),
    KafkaError(ErrorCode.POLICY_VIOLATION, "the batch is too large"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code.name)
def test_an_append_that_fails_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: KafkaError
) -> None:
    """Of a registration, an unfencing, a fencing and an unregistration; afterwards each of them succeeds."""
    clock = ManualClock()

    async def main() -> None:
        async with RunningController(tmp_path, clock=clock) as c:
            heartbeats = c.controller.state.heartbeats
            await c.register(1)
            append = c.driver.append

            def refuse(records: Any, *, atomic: bool = True) -> int:
                raise refusal

            async def refused_then_done(request: Any) -> Any:
                before = table(heartbeats), dict(heartbeats.awaited)
                monkeypatch.setattr(c.driver, "append", refuse)
                assert (await c.ask(request)).error_code == refusal.code
                assert (table(heartbeats), heartbeats.awaited) == before
                monkeypatch.setattr(c.driver, "append", append)
                answer = await c.ask(request)
                assert answer.error_code == 0
                assert table(heartbeats) != before[0]
                return answer

            epoch = (await refused_then_done(registration(2))).broker_epoch
            end = c.driver.end_offset
            assert table(heartbeats)[2] == (epoch, True, -1, -1)
            await refused_then_done(beat(2, epoch, end))
            assert table(heartbeats)[2] == (epoch, False, -1, -1)
            await c.ask(beat(2, epoch, end))
            assert table(heartbeats)[2] == (epoch, False, end, -1)
            await refused_then_done(beat(2, epoch, end, want_fence=True))
            assert table(heartbeats)[2] == (epoch, True, -1, -1)
            # Another process of a known broker starts with nothing.
            clock.advance(9_001)
            again = registration(2, incarnation=b"again" + bytes(11))
            epoch = (await refused_then_done(again)).broker_epoch
            assert table(heartbeats)[2] == (epoch, True, -1, -1)
            await refused_then_done(unregister_broker.UnregisterBrokerRequest(broker_id=2))
            assert list(table(heartbeats)) == [1]

    asyncio.run(main())


@pytest.mark.parametrize("gone", [False, True])
def test_a_fencing_that_could_not_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Whether the session ran out or the process is known to be gone, and also if another one stands in its way."""
    clock = ManualClock()

    async def main() -> None:
        async with RunningController(tmp_path, clock=clock) as c:
            epochs = {broker_id: await c.register(broker_id, (bytes([broker_id]) * 16,)) for broker_id in (1, 2)}
            heartbeats, brokers = c.controller.state.heartbeats, c.controller.state.image.brokers
            append = c.driver.append

            def refuse(records: Any, *, atomic: bool = True) -> int:
                if records[-1][0].broker_id == 1:
                    raise LogFull(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
                return append(records, atomic=atomic)

            monkeypatch.setattr(c.driver, "append", refuse)
            if gone:
                c.controller.broker_gone(1, epochs[1])
                assert not heartbeats.has_session(1, epochs[1], clock.monotonic_ms())
                c.controller.broker_gone(2, epochs[2])
            else:
                clock.advance(9_001)
                with pytest.raises(LogFull):
                    c.controller._fence_stale()
            assert (brokers[1].fenced, brokers[2].fenced) == (False, True)
            assert heartbeats.expired(clock.monotonic_ms()) == [(1, epochs[1])]
            monkeypatch.setattr(c.driver, "append", append)
            c.controller._fence_stale()
            assert brokers[1].fenced
            assert heartbeats.expired(clock.monotonic_ms()) == []

    asyncio.run(main())


def test_the_table_goes_with_the_state_and_is_built_again_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            epoch = await c.register(1)
            heartbeats = c.controller.state.heartbeats
            reply = await c.ask(registration(2))
            c.controller.resign()
            assert table(heartbeats) == {}
            c.controller.lead(c.driver.epoch)
            assert table(heartbeats) == {1: (epoch, False, -1, -1), 2: (reply.broker_epoch, True, -1, -1)}
            assert list(heartbeats.awaited) == [2]

    asyncio.run(main())
