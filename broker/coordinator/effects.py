"""What an event wants to happen: records to write, replies to send, timers to set. Plain values, so that a decision can
be tested by looking at them; the shard carries them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.broker.coordinator.records import CoordinatorRecord, encode_record
from pylogd.broker.dispatch import Deferred
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import Message

Event = Callable[["Effects"], None]
Encoded = tuple[bytes | bytearray, bytes | bytearray | None]


class Reply(Deferred):
    """A reply that a coordinator owes. `refuse(code, message)` makes the response for when it cannot be given."""

    __slots__ = ("_refuse",)

    def __init__(self, refuse: Callable[[ErrorCode, str | None], Any]) -> None:
        super().__init__()
        self._refuse = refuse

    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        return self._refuse(code, message)

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.resolve(self.refuse(code, message))


class Effects:
    """Filled by one event. `state` replays records as they are written, from `base_offset` on."""

    __slots__ = (
        "atomic",
        "base_offset",
        "encoded",
        "now_ms",
        "producer_id",
        "record_bytes_max",
        "records",
        "replies",
        "size",
        "state",
        "timers",
    )

    def __init__(
        self,
        now_ms: int,
        state: Any,
        base_offset: int = 0,
        producer_id: int = -1,
        record_bytes_max: int = 1_000_000,
    ) -> None:
        self.now_ms = now_ms
        self.state = state
        self.base_offset = base_offset
        self.producer_id = producer_id
        self.record_bytes_max = record_bytes_max
        #: False: the records may be spread over several batches.
        self.atomic = True
        self.records: list[CoordinatorRecord] = []
        #: Bytes of key and value of each record, and how many that is.
        self.encoded: list[Encoded] = []
        self.size = 0
        self.replies: list[tuple[Any, Any]] = []
        #: name -> (delay, event), or None to cancel
        self.timers: dict[Any, tuple[int, Event] | None] = {}

    def write(self, key: Message, value: Message | None, version: int = 0, encoded: Encoded | None = None) -> None:
        """Append a record; `version` is that of the value, None as value deletes the key. The state has taken it in
        when this returns. KafkaError when it is too large, and then nothing has happened. `encoded` are its bytes, for
        who has a faster way to them."""
        record = CoordinatorRecord(key, value, version)
        if encoded is None:
            encoded = encode_record(record)
        content = encoded[1]
        size = len(encoded[0]) if content is None else len(encoded[0]) + len(content)
        if size > self.record_bytes_max:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a record of {size} bytes is too large")
        self.state.replay(record, self.base_offset + len(self.records), self.producer_id)
        self.records.append(record)
        self.encoded.append(encoded)
        self.size += size

    def gathered(self) -> None:
        """What is written so far has its place: the next event begins behind it."""
        self.base_offset += len(self.records)
        self.records = []
        self.encoded = []
        self.size = 0

    def answer(self, reply: Any, response: Any) -> None:
        """Give `reply` its response once everything this event saw and wrote is committed."""
        self.replies.append((reply, response))

    def after(self, name: Any, delay_ms: int, event: Event) -> None:
        """Run `event` in `delay_ms`; a timer of the same name is replaced."""
        self.timers[name] = (delay_ms, event)

    def cancel(self, name: Any) -> None:
        self.timers[name] = None
