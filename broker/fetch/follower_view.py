"""A follower's fetch session at work: only partitions in which something happened are looked at.

A consumer's session is planned whole. A follower's may hold thousands of partitions and is used many times a second, so
it keeps two sets: `dirty` has every partition that moved since the follower was last told that it has everything, was
named in a request, or must be answered with an error; `behind` has those in which the follower is not in sync, whose
progress counts with every fetch even if it is not named, because the cluster's view of the follower may have changed.
All others are idle: the follower is at the leader's end, and a watch in the partition tells when that ends. That moment
is also when the leader writes down until when the follower was caught up.

`dirty` is ordered: a partition that was named goes to the end, so that one that got nothing because the response was
full comes first in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pylogd.broker.fetch.fetch_plan import FetchParams, FetchPlanner, Plan, note_progress
from pylogd.protocol.errors import KafkaError

if TYPE_CHECKING:
    from pylogd.broker.fetch.fetch_sessions import FetchTarget, Key
    from pylogd.replication.partition import Partition


class WaitingPoll(Protocol):
    """A follower's Fetch that waits: a `FollowerPoll`, or a form that stands for one."""

    def schedule(self) -> None:
        """Some partition of the session moved; others may in the same turn."""


class _Watch:
    """Registered with one partition as long as the session lives."""

    __slots__ = ("_view", "partition", "target")

    def __init__(self, view: FollowerView, target: FetchTarget, partition: Partition) -> None:
        self._view = view
        self.target = target
        self.partition = partition
        partition.waiters.fetches[self] = None

    def woken(self) -> None:
        """Records, an error, or only a new watermark, which the follower hears with the next response."""
        view, target, partition = self._view, self.target, self.partition
        if target.key not in view.dirty:
            follower = partition.followers.get(view.replica_id)
            if follower is not None:
                follower.idle_until(view.fetched_ms)
            view.dirty[target.key] = target
        if view.poll is not None and (
            not partition.is_leader
            or partition.leader_epoch != target.current_leader_epoch
            or partition.log.log_end_offset > target.fetch_offset
        ):
            view.poll.schedule()

    def leave(self) -> None:
        self.partition.waiters.fetches.pop(self, None)


class FollowerView:
    """What one follower's session has to look at."""

    __slots__ = (
        "_planner",
        "_replicas",
        "_watches",
        "behind",
        "dirty",
        "fetched_ms",
        "poll",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self, planner: FetchPlanner, replica_id: int, replica_epoch: int, targets: dict[Key, FetchTarget]
    ) -> None:
        self._planner = planner
        self._replicas = planner.replicas
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.dirty: dict[Key, FetchTarget] = dict(targets)
        self.behind: dict[Key, FetchTarget] = dict(targets)
        #: When the session was last used.
        self.fetched_ms = 0
        #: The long poll that waits, if any.
        self.poll: WaitingPoll | None = None
        self._watches: dict[Key, _Watch] = {}

    def watches(self, target: FetchTarget, partition: Partition) -> bool:
        """Whether it is told when this partition moves."""
        watch = self._watches.get(target.key)
        return watch is not None and watch.partition is partition and watch.target is target

    def forget(self, key: Key) -> None:
        self.dirty.pop(key, None)
        self.behind.pop(key, None)
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.leave()

    def close(self) -> None:
        """The session is over."""
        for watch in self._watches.values():
            watch.leave()
        self._watches.clear()
        self.dirty.clear()
        self.behind.clear()

    def start(self, params: FetchParams, named: list[FetchTarget]) -> Plan | None:
        """A request has arrived: the fetch offsets count as the follower's progress. None when there is nothing to send
        in any partition, which is what a follower that keeps up finds every time."""
        self.fetched_ms = params.now_ms
        dirty = self.dirty
        for key, target in self.behind.items():
            if key not in dirty:
                dirty[key] = target
        for target in named:
            dirty.pop(target.key, None)
            dirty[target.key] = target
        hosted = self._replicas.by_id
        watches = self._watches
        quiet: list[tuple[Partition, FetchTarget]] | None = []
        for key, target in dirty.items():
            partition = hosted.get(key)
            if partition is None:
                quiet = None
                continue
            if not self.watches(target, partition):
                if key in watches:
                    watches[key].leave()
                watches[key] = _Watch(self, target, partition)
            if quiet is not None:
                if self.at_the_end(
                    partition, target.current_leader_epoch, target.fetch_offset, target.last_fetched_epoch
                ):
                    quiet.append((partition, target))
                else:
                    quiet = None
        if quiet is None:
            return self._planner.plan(list(dirty.values()), params, first=True)
        try:
            for partition, target in quiet:
                note_progress(partition, target, params)
        except KafkaError:
            return self._planner.plan(list(dirty.values()), params, first=True)
        return None

    def at_the_end(self, partition: Partition, leader_epoch: int, offset: int, last_epoch: int) -> bool:
        """Whether the follower is valid and has exactly what the leader has."""
        if (
            not partition.is_leader
            or leader_epoch != partition.leader_epoch
            or self.replica_id not in partition.followers
        ):
            return False
        log = partition.log
        return offset == log.log_end_offset and last_epoch == log.epochs.latest and not log.offline

    def replan(self, params: FetchParams, nowait: bool) -> Plan:
        return self._planner.plan(list(self.dirty.values()), params, first=False, nowait=nowait)

    def answered(self, plan: Plan) -> None:
        """This plan is the response: what needs no second look is idle from now on."""
        hosted = self._replicas.by_id
        dirty, behind = self.dirty, self.behind
        for target, answer in plan.answers:
            key = target.key
            partition = hosted.get(key)
            if partition is None or not partition.is_leader:
                continue
            if self.replica_id in partition.maximal_isr:
                behind.pop(key, None)
            else:
                behind[key] = target
            if (
                answer.error_code == 0
                and answer.diverging_epoch.epoch < 0
                and target.fetch_offset >= partition.log.log_end_offset
                # Not if it came to this broker while the request waited: nobody would tell when it moves.
                and self.watches(target, partition)
            ):
                dirty.pop(key, None)
