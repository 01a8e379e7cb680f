"""Partitions whose fetch offset the leader refused as out of its range: ask where it ends, then where it starts.

The first answer may be enough: a leader that ends before the follower was elected uncleanly. Otherwise the second tells
whether the leader has deleted what the follower needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pylogd.replication.divergence import out_of_range_offset
from pylogd.replication.fetch_state import FetchState, Key

_LATEST = -1
_EARLIEST = -2


class OffsetSearch:
    """The partitions in question, of one leader."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[Key, FetchState] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def __contains__(self, key: Key) -> bool:
        return key in self._states

    def add(self, state: FetchState) -> None:
        state.leader_end_offset = -1
        self._states[state.key] = state

    def discard(self, key: Key) -> None:
        self._states.pop(key, None)

    def request(self, broker_id: int) -> Any:
        from pylogd.protocol.messages import list_offsets as m

        topics: dict[str, Any] = {}
        for state in self._states.values():
            partition = state.partition
            topic = topics.setdefault(partition.topic, m.ListOffsetsTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                m.ListOffsetsPartition(
                    partition_index=partition.index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=_LATEST if state.leader_end_offset < 0 else _EARLIEST,
                )
            )
        return m.ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))

    def answers(self, response: Any) -> Iterator[tuple[FetchState, int, int]]:
        """(partition, error code, offset) of each answer, but for partitions that left the search meanwhile."""
        asked = {(state.partition.topic, state.partition.index): state for state in self._states.values()}
        for topic in response.topics:
            for data in topic.partitions:
                state = asked.get((topic.name, data.partition_index))
                if state is not None and state.key in self._states:
                    yield state, data.error_code, data.offset

    def learn(self, state: FetchState, offset: int) -> tuple[int, bool] | None:
        """One answer: (where to fetch from, whether everything here is stale), or None while another is needed."""
        log = state.partition.log
        if state.leader_end_offset >= 0:
            found = out_of_range_offset(log.log_end_offset, offset, state.leader_end_offset)
        elif offset < log.log_end_offset:
            found = out_of_range_offset(log.log_end_offset, log.log_start_offset, offset)
        else:
            state.leader_end_offset = offset
            return None
        self.discard(state.key)
        return found
