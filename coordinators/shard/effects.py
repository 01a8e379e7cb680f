"""What an event wants to happen: records to write, replies to send, timers to set. Plain values, so that a decision can
be tested by looking at them; the shard carries them out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from pylogd.coordinators.shard.record_pairs import CoordinatorRecord, encode_record
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.records import PLAIN_OVERHEAD_MAX, plain_record_size
from pylogd.protocol.schema import Message
from pylogd.runtime.deferred import Deferred

Event = Callable[["Effects"], None]
Encoded = tuple[bytes | bytearray, bytes | bytearray | None]
#: A record to write: key, value, the value's version, and its bytes where the caller has them already.
Wanted = tuple[Message, Message | None, int, Encoded | None]

#: What a failed write means to a client of the coordinator.
WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ReplayedState(Protocol):
    """The state of a partition as the log describes it."""

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Take in a record, live or loaded: the same code, nothing else changes durable state. `producer_id` is -1
        unless the record belongs to a transaction."""


class Resolvable(Protocol):
    """A `Reply`, or anything else that waits for what an event wrote to be committed."""

    def resolve(self, response: Any) -> None: ...


#: Who is answered, and the response.
Answer = tuple[Resolvable, Any]


class WriteRefused(KafkaError):
    """A record cannot be written now, and nothing has happened."""


class AwaitedReply(Resolvable, Protocol):
    """A reply to a request, which can be refused as well."""

    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        """The response that says why it cannot be given."""

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        """Give that response."""


class PromisedReply(Deferred, ABC):
    """A coordinator's answer to a request."""

    __slots__ = ()

    @abstractmethod
    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        """The response that says why it cannot be given."""

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.resolve(self.refuse(code, message))


class Reply(PromisedReply):
    """With the function that makes the response for when it cannot be given."""

    __slots__ = ("_refuse",)

    def __init__(self, refuse: Callable[[ErrorCode, str | None], Any]) -> None:
        super().__init__()
        self._refuse = refuse

    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        return self._refuse(code, message)


def plain_size(encoded: list[Encoded], first_delta: int, limit: int) -> int:
    """How many bytes the records take in a batch; `first_delta` is the offset delta of the first. An upper bound where
    that is within `limit`."""
    bound = sum([len(key) + len(value or b"") for key, value in encoded]) + PLAIN_OVERHEAD_MAX * len(encoded)
    if bound <= limit:
        return bound
    return sum(plain_record_size(first_delta + place, key, value) for place, (key, value) in enumerate(encoded))


class Effects:
    """Filled by one event. `state` replays records as they are written, from `base_offset` on."""

    __slots__ = (
        "atomic",
        "base_offset",
        "batch_bytes_max",
        "encoded",
        "now_ms",
        "producer_id",
        "records",
        "replies",
        "size",
        "state",
        "timers",
        "writable",
    )

    def __init__(
        self,
        now_ms: int,
        state: ReplayedState,
        base_offset: int = 0,
        producer_id: int = -1,
        batch_bytes_max: int = 1_000_000,
        writable: bool = True,
    ) -> None:
        self.now_ms = now_ms
        self.state = state
        self.base_offset = base_offset
        self.producer_id = producer_id
        #: How many bytes of records fit into a batch.
        self.batch_bytes_max = batch_bytes_max
        #: False: too few replicas are in sync, and every record is refused.
        self.writable = writable
        #: False: the records may be spread over several batches.
        self.atomic = True
        self.records: list[CoordinatorRecord] = []
        #: Bytes of key and value of each record, and how many that is.
        self.encoded: list[Encoded] = []
        self.size = 0
        self.replies: list[Answer] = []
        #: name -> (delay, event), or None to cancel
        self.timers: dict[Hashable, tuple[int, Event] | None] = {}

    def write(self, key: Message, value: Message | None, version: int = 0, encoded: Encoded | None = None) -> None:
        """Append a record; `version` is that of the value, None as value deletes the key. The state has
        replayed it when this returns. WriteRefused when it is too large or nothing can be written now; then nothing has
        happened. `encoded` are its bytes, where the caller has a faster way to them."""
        if not self.writable:
            self.check_writable()
        record = CoordinatorRecord(key, value, version)
        if encoded is None:
            encoded = encode_record(record)
        content = encoded[1]
        size = len(encoded[0]) if content is None else len(encoded[0]) + len(content)
        if size + PLAIN_OVERHEAD_MAX > self.batch_bytes_max:
            self._check_fits([encoded])
        self.state.replay(record, self.base_offset + len(self.records), self.producer_id)
        self.records.append(record)
        self.encoded.append(encoded)
        self.size += size

    def write_all(self, wanted: list[Wanted]) -> None:
        """Append several records. WriteRefused when they do not fit into the one batch that has to hold them, or
        nothing can be written now; then nothing has happened."""
        if len(wanted) > 1:
            bytes_of = [
                encode_record(CoordinatorRecord(key, value, version)) if encoded is None else encoded
                for key, value, version, encoded in wanted
            ]
            if self.atomic:
                self._check_fits(self.encoded + bytes_of)
            wanted = [(*record[:3], encoded) for record, encoded in zip(wanted, bytes_of, strict=True)]
        for record in wanted:
            self.write(*record)

    def _check_fits(self, encoded: list[Encoded]) -> None:
        size = plain_size(encoded, 0, self.batch_bytes_max)
        if size > self.batch_bytes_max:
            raise WriteRefused(ErrorCode.RECORD_LIST_TOO_LARGE, f"no batch can hold {size} bytes of records")

    def check_writable(self) -> None:
        """WriteRefused when nothing can be written now. To be called first by an event that changes, before it writes,
        state that is in no record."""
        if not self.writable:
            raise WriteRefused(ErrorCode.NOT_ENOUGH_REPLICAS)

    def gathered(self) -> None:
        """The records so far belong to the batch of this turn: those of the next event come behind them."""
        self.base_offset += len(self.records)
        self.records = []
        self.encoded = []
        self.size = 0

    def answer(self, reply: Resolvable, response: Any) -> None:
        """Give `reply` its response once everything this event saw and wrote is committed."""
        self.replies.append((reply, response))

    def after(self, name: Hashable, delay_ms: int, event: Event) -> None:
        """Run `event` in `delay_ms`; a timer of the same name is replaced."""
        self.timers[name] = (delay_ms, event)

    def cancel(self, name: Hashable) -> None:
        self.timers[name] = None
