"""One replica of a partition on this broker: leader or follower, its log, the in-sync replicas and the high watermark.

The high watermark is the smallest log end among the in-sync replicas and never moves back under one leader. With
`flush.messages=1` the leader counts as far as its log is flushed, and every acknowledgement, acks=1 included, waits for
that: durable means flushed. The log asks for its flushes itself and tells when one is done.

Here are the role of the replica, the leader's part, and who waits. `in_sync.py` decides who belongs to the ISR;
`following.py` has the follower's part.

The log of a partition may be opened on first use only, so that a broker with thousands of partitions starts at once.

State changes come from the committed cluster image only, through `become_leader` and `become_follower`; a coordinator
that lives on a partition listens to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.replication import in_sync
from pylogd.replication.in_sync import FollowerState, Proposal
from pylogd.replication.waiters import Waiter, Waiters
from pylogd.storage.validation import Origin

if TYPE_CHECKING:
    from pylogd.replication.replicas import Replicas
    from pylogd.storage.log.log import AppendInfo, Log
    from pylogd.storage.log.log_state import LogState
    from pylogd.storage.log.placing import Placement
    from pylogd.storage.producers.verification_guard import Guard

NO_LEADER = -1
#: Called with (partition, leader epoch or None): leadership won, or lost.
LeadershipListener = Callable[["Partition", "int | None"], None]


class Partition:
    """One hosted replica."""

    __slots__ = (
        "_log",
        "_open",
        "_replicas",
        "epoch_start_offset",
        "followers",
        "index",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "listeners",
        "maximal_isr",
        "name",
        "offline",
        "partition_epoch",
        "proposal",
        "replica_ids",
        "topic",
        "topic_id",
        "waiters",
        "wake_scheduled",
    )

    def __init__(
        self, replicas: Replicas, topic: str, index: int, topic_id: bytes, log: Log | Callable[[], Log]
    ) -> None:
        self._replicas = replicas
        self.topic = topic
        self.index = index
        self.name = f"{topic}-{index}"
        self.topic_id = topic_id
        #: None until it is opened, by `_open`.
        self._log: Log | None = None
        self._open: Callable[[], Log] | None = None
        self.leader = NO_LEADER
        self.is_leader = False
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replica_ids: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        #: The change of the ISR that the controller has not answered yet, and all replicas that may be in the ISR by
        #: then: those the high watermark waits for.
        self.proposal: Proposal | None = None
        self.maximal_isr: tuple[int, ...] = ()
        #: The log end when this leadership began. Until the high watermark reaches it, "latest" is not known.
        self.epoch_start_offset = -1
        self.followers: dict[int, FollowerState] = {}
        self.listeners: list[LeadershipListener] = []
        #: In a log directory that failed.
        self.offline = False
        self.waiters = Waiters(replicas.loop)
        self.wake_scheduled = False
        if callable(log):
            self._open = log
        else:
            self._log = log
            log.flush_listeners.append(self._flushed)

    @property
    def log(self) -> Log:
        """The log, opened now if nobody has used it yet. KafkaError when its directory is offline."""
        return self._log or self._opened()

    def _opened(self) -> Log:
        assert self._open is not None
        log = self._open()
        self._open = None
        self._log = log
        log.flush_listeners.append(self._flushed)
        if self.is_leader:
            self._lead(log)
        return log

    def _flushed(self, log: LogState) -> None:
        if self.is_leader:
            self.advance()
        elif self._replicas.follower_flushed is not None:
            self._replicas.follower_flushed(self)

    # -- leadership

    def become_leader(
        self, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...] | None = None, partition_epoch: int = -1
    ) -> None:
        """Lead under `epoch`, or take over a new ISR under the present epoch. Older epochs are ignored."""
        if epoch < self.leader_epoch or (epoch == self.leader_epoch and 0 <= partition_epoch < self.partition_epoch):
            return
        me = self._replicas.broker_id
        starts = epoch > self.leader_epoch or not self.is_leader
        # An epoch was skipped: another broker may have led in it and made followers truncate. What was known of them
        # counts no more.
        new_leader = not self.is_leader or epoch > self.leader_epoch + 1
        # The answer to a proposal may have brought this partition epoch already. Then the ISR is known, and the next
        # proposal may be under way.
        if starts or partition_epoch != self.partition_epoch or partition_epoch < 0:
            self.partition_epoch = partition_epoch
            self.isr = self.maximal_isr = isr
            self.proposal = None
        self.replica_ids = replicas if replicas is not None else isr
        self.followers = {
            replica: self.followers.get(replica) or FollowerState() for replica in self.replica_ids if replica != me
        }
        if starts:
            self.waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.leader = me
            self.is_leader = not self.offline
            self.leader_epoch = epoch
            if self._log is not None and not self.offline:
                self._lead(self.log, new_leader)
            else:
                self._start_followers(-1, True)
        elif self._log is not None:
            self.advance()
        if starts and self.is_leader:
            for listener in tuple(self.listeners):
                listener(self, epoch)

    def _start_followers(self, leader_end: int, new_leader: bool) -> None:
        now_ms = self._replicas.clock.monotonic_ms()
        for replica, follower in self.followers.items():
            follower.start_epoch(now_ms, leader_end, new_leader=new_leader, in_sync=replica in self.isr)

    def _lead(self, log: Log, new_leader: bool = True) -> None:
        """Begin the leader epoch in the log: now, or when the log is opened."""
        self._start_followers(log.log_end_offset, new_leader)
        self.epoch_start_offset = log.log_end_offset
        log.epochs.assign(self.leader_epoch, log.log_end_offset)
        self.advance()

    def become_follower(
        self,
        epoch: int,
        leader: int = NO_LEADER,
        isr: tuple[int, ...] = (),
        replicas: tuple[int, ...] | None = None,
        partition_epoch: int = -1,
    ) -> None:
        """Follow `leader` (-1: nobody leads). What was waiting for this broker's acknowledgements fails."""
        if epoch < self.leader_epoch or (epoch == self.leader_epoch and 0 <= partition_epoch < self.partition_epoch):
            return
        led = self.is_leader
        self.leader = leader
        self.is_leader = False
        self.leader_epoch = epoch
        self.partition_epoch = partition_epoch
        self.isr = self.maximal_isr = isr
        self.proposal = None
        self.replica_ids = replicas if replicas is not None else isr
        self.followers = {}
        self.epoch_start_offset = -1
        self._ceased(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def go_offline(self) -> None:
        """The log directory failed: nothing can be read or written here until a restart."""
        if self.offline:
            return
        self.offline = True
        led, self.is_leader = self.is_leader, False
        self._ceased(led, ErrorCode.KAFKA_STORAGE_ERROR)

    def stop(self) -> None:
        """The replica leaves this broker (topic deleted, or moved away)."""
        led, self.is_leader = self.is_leader, False
        self.leader = NO_LEADER
        if self._log is not None:
            self._log.flush_listeners.remove(self._flushed)
        self._ceased(led, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _ceased(self, led: bool, code: ErrorCode) -> None:
        """The role of this replica is over: whoever waits fails, and a leadership that was lost is told."""
        self.waiters.fail(code)
        if led:
            for listener in tuple(self.listeners):
                listener(self, None)

    # -- checks

    def check_epoch(self, current_leader_epoch: int) -> None:
        """KafkaError unless the client's leader epoch is ours, or -1: it does not know one."""
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        code = (
            ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        raise KafkaError(
            code,
            f"The leader epoch of {self.name} is {self.leader_epoch}, the request has {current_leader_epoch}.",
        )

    def readable_log(self, current_leader_epoch: int = -1, *, leader_only: bool = True) -> Log:
        """The log, if the request's epoch is ours and, unless any replica will do, we lead."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self.name} is in an offline log directory")
        if current_leader_epoch != -1 and current_leader_epoch != self.leader_epoch:
            self.check_epoch(current_leader_epoch)
        if leader_only and not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._not_leader())
        return self.log

    def _not_leader(self) -> str:
        return f"Leader not local for partition {self.name} on broker {self._replicas.broker_id}"

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, which cannot ask for more replicas than there are."""
        return min(self.log.config.min_insync_replicas, len(self.replica_ids) or 1)

    @property
    def ack_code(self) -> ErrorCode:
        """What a produce with acks=all is answered once the high watermark has passed it."""
        if len(self.maximal_isr) >= len(self.replica_ids) or len(self.maximal_isr) >= self.min_isr:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def flush_gates_acks(self) -> bool:
        return self.log.config.flush_messages == 1

    @property
    def low_watermark(self) -> int:
        """Smallest log start among the living replicas: records below it are gone everywhere."""
        low = self.log.log_start_offset
        for replica, follower in self.followers.items():
            if follower.log_start_offset < low and self._replicas.standing(replica) is not None:
                low = follower.log_start_offset
        return low

    # -- moving

    def append(
        self,
        records: memoryview,
        *,
        acks: int = 1,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        version: int = 13,
        transaction_version: int = 0,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Append one batch as the leader; KafkaError when it is refused. `version` is that of the Produce request,
        `transaction_version` that of the transaction a marker ends, `guard` what the transaction's coordinator was
        asked under."""
        log = self._log or self._opened()
        if not self.is_leader:
            if self.offline:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self.name} is in an offline log directory")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._not_leader())
        if acks == -1 and len(self.isr) < len(self.replica_ids) and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(self.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.min_isr} for partition {self.name}, live replica(s) broker.id are : {set(self.isr)}",
            )
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            version=version,
            transaction_version=transaction_version,
            guard=guard,
        )
        self.advance()
        return info

    def place(self, batches: list[memoryview], now_ms: int) -> Placement | None:
        """The places that several clients' batches get when they are appended at once; see `Log.place`. None when they
        have to be appended one by one. `write` appends them."""
        return self.log.place(batches, self.leader_epoch, now_ms) if self.is_leader else None

    def write(self, placed: Placement) -> None:
        """Append what `place` gave its places; KafkaError when nothing could be written."""
        placed.write()
        self.advance()

    def advance(self) -> None:
        """The log end, the flushed offset, a follower or the ISR moved: raise the high watermark to what every in-sync
        replica has, and wake who waits."""
        if not self.is_leader:
            return
        log = self._log or self._opened()
        waiters = self.waiters
        mark = log.log_end_offset if log.config.flush_messages != 1 else log.flushed_offset
        if self.followers:
            isr = self.maximal_isr
            if len(self.isr) < len(self.replica_ids) and len(self.isr) < self.min_isr:
                mark = -1  # too few to call anything replicated
            for replica, follower in self.followers.items():
                if follower.log_end_offset < mark and (replica in isr or self._about_to_join(replica, follower)):
                    mark = follower.log_end_offset
        if mark > log.high_watermark:
            log.high_watermark = mark
            if waiters.acks:
                waiters.settle(waiters.acks, mark, self.ack_code)
        if waiters.flushes:
            waiters.settle(waiters.flushes, log.flushed_offset, ErrorCode.NONE)
        if waiters.fetches and not self.wake_scheduled:
            self._replicas.schedule_wake(self)

    # -- waiting

    def must_wait(self, acks: int, last_offset: int) -> bool:
        """Whether a produce is acknowledged later than now: with acks=all when the high watermark has passed it, with
        acks=1 and `flush.messages=1` when it is flushed."""
        log = self.log
        if acks == -1:
            return log.high_watermark <= last_offset
        return log.config.flush_messages == 1 and log.flushed_offset <= last_offset

    def when_committed(self, offset: int, epoch: int, deadline_s: float, waiter: Waiter, slot: int = 0) -> None:
        """Tell `waiter` once, maybe before this returns: when the high watermark has reached `offset`, when the
        leadership of `epoch` is over, or REQUEST_TIMED_OUT at `deadline_s` of the event loop."""
        if epoch != self.leader_epoch or not self.is_leader:
            waiter.acknowledged(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= offset:
            waiter.acknowledged(slot, self.ack_code)
        else:
            self.waiters.wait(self.waiters.acks, offset, deadline_s, waiter, slot)

    def when_flushed(self, offset: int, epoch: int, deadline_s: float, waiter: Waiter, slot: int = 0) -> None:
        """As `when_committed`, when everything below `offset` is on the leader's disk."""
        if epoch != self.leader_epoch or not self.is_leader:
            waiter.acknowledged(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.flushed_offset >= offset:
            waiter.acknowledged(slot, ErrorCode.NONE)
        else:
            self.waiters.wait(self.waiters.flushes, offset, deadline_s, waiter, slot)

    def when_start_moved(self, offset: int, epoch: int, deadline_s: float, waiter: Waiter, slot: int = 0) -> None:
        """As `when_committed`, when no living replica has records below `offset`."""
        if epoch != self.leader_epoch or not self.is_leader:
            waiter.acknowledged(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.low_watermark >= offset:
            waiter.acknowledged(slot, ErrorCode.NONE)
        else:
            self.waiters.wait(self.waiters.starts, offset, deadline_s, waiter, slot)

    def abandon(self, waiter: Waiter) -> None:
        """`waiter` waits no longer and is told nothing."""
        self.waiters.abandon(waiter)

    # -- followers

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """A follower's fetch is only served to a replica of this partition."""
        if replica_id not in self.followers:
            # With an epoch: the follower may have newer metadata than we. Without one nobody can tell whose is older.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == -1 else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(
                code,
                f"Replica {replica_id} is not recognized as a valid replica of {self.name} in leader epoch "
                f"{self.leader_epoch} with partition epoch {self.partition_epoch}",
            )

    def _about_to_join(self, replica_id: int, follower: FollowerState) -> bool:
        """Caught up and allowed to join. If the high watermark did not wait for it, it might never reach it."""
        replicas = self._replicas
        now_ms = replicas.clock.monotonic_ms()
        end = self.log.log_end_offset
        return follower.caught_up(end, now_ms, replicas.lag_ms_max) and in_sync.eligible(self, replicas, replica_id)

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower asks for `offset`: it has everything below. NOT_LEADER_OR_FOLLOWER when its broker has restarted
        since (a newer broker epoch is known)."""
        follower = self.followers[replica_id]
        if broker_epoch != follower.broker_epoch and broker_epoch != -1:
            standing = self._replicas.standing(replica_id)
            if standing is not None and standing.epoch > broker_epoch:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"Replica {replica_id} of {self.name} has broker epoch {standing.epoch}, not {broker_epoch}",
                )
        moved = follower.log_end_offset != offset
        start_moved = follower.log_start_offset != log_start_offset
        follower.fetched(offset, log_start_offset, broker_epoch, self.log.log_end_offset, now_ms)
        if replica_id not in self.maximal_isr:
            in_sync.expand(self, self._replicas, replica_id)
        if moved:
            self.advance()
        if start_moved and self.waiters.starts:
            self.waiters.settle(self.waiters.starts, self.low_watermark, ErrorCode.NONE)

    def wake_fetches(self) -> None:
        """Something moved that `advance` does not see, such as the log start: long polls look again."""
        if self.waiters.fetches and not self.wake_scheduled:
            self._replicas.schedule_wake(self)

    def __repr__(self) -> str:
        role = "offline" if self.offline else "leader" if self.is_leader else f"follower of {self.leader}"
        return f"Partition({self.name}, {role}, epoch {self.leader_epoch})"
