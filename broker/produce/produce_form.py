"""What a remembered Produce request leads to: a partition, and what its reply looks like. See
`broker/produce/produce_template.py`."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from pylogd.broker.gate.gate import ResourceKind
from pylogd.broker.network.context import RequestContext
from pylogd.broker.network.reply_frames import frame_of
from pylogd.broker.produce.refusals import with_leaders
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from pylogd.broker.gate.gate import Resource
    from pylogd.broker.network.dispatch import Route
    from pylogd.broker.network.templates import RepeatingConnection
    from pylogd.protocol.messages.produce import ProduceRequest
    from pylogd.replication.partition import Partition
    from pylogd.rpc.caller import Caller
    from pylogd.storage.log.log import AppendInfo

_int32 = Struct(">i").unpack_from
_int64 = Struct(">q").unpack_from
#: Since version 9: no tags behind the partition, the topic and the request.
NO_TAGS = b"\x00\x00\x00"
#: Low byte of a batch's attributes, with the transactional bit.
_ATTRIBUTES_LOW = 22
_TRANSACTIONAL = 0x10
_PRODUCER_ID = 43
#: Base offset, append time and log start in the reply whose frame is the pattern of all others.
_MARKS = (0x1122334455667788, 0x2233445566778899, 0x33445566778899AA)


def resources(request: ProduceRequest) -> tuple[Resource, ...]:
    """The topics that a request names."""
    return tuple([(ResourceKind.TOPIC, topic.name or topic.topic_id) for topic in request.topic_data])


class ProduceForm:
    """One remembered request."""

    __slots__ = (
        "acks",
        "caller",
        "flexible",
        "has_log_start",
        "index",
        "middle",
        "pack",
        "partition",
        "plain",
        "route",
        "size",
        "tail",
        "timeout_s",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self, caller: Caller, route: Route, partition: Partition, request: ProduceRequest) -> None:
        #: Who sent it: the client id is part of the name.
        self.caller = caller
        self.route = route
        self.version = route.version
        self.flexible = route.request_tagged
        self.partition = partition
        self.acks = request.acks
        self.timeout_s = max(request.timeout_ms, 0) / 1000
        topic = request.topic_data[0]
        self.topic, self.topic_id = topic.name, topic.topic_id
        self.index = topic.partition_data[0].index
        records = topic.partition_data[0].records
        #: Requests without a producer id: these need nothing but a place in the log.
        self.plain = self.version > 6 and records is not None and _int64(records, _PRODUCER_ID)[0] < 0
        # The reply's frame, cut around the numbers that change; from version 5 on it names the log's start as well.
        frame = bytearray()
        route.encode_into(frame, [], 0, self._response(PartitionProduceResponse(self.index, 0, *_MARKS)))
        self.has_log_start = route.version >= 5
        numbers = Struct(">qqq").pack(*_MARKS) if self.has_log_start else Struct(">qq").pack(*_MARKS[:2])
        at = frame.index(numbers)
        self.middle = bytes(frame[8:at])
        self.tail = bytes(frame[at + len(numbers) :])
        self.size = len(frame) - 4
        pattern = f">ii{len(self.middle)}s{'qqq' if self.has_log_start else 'qq'}{len(self.tail)}s"
        self.pack: Callable[..., bytes] = Struct(pattern).pack

    @property
    def alone(self) -> bool:
        """Not replicated and not bound to the disk: acknowledged in the moment it is appended."""
        partition = self.partition
        return (
            self.plain and partition.is_leader and not partition.followers and partition.log.config.flush_messages != 1
        )

    def _response(self, answer: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse([TopicProduceResponse(self.topic, self.topic_id, [answer])])

    def reply(self, correlation_id: int, info: AppendInfo) -> bytes:
        if self.has_log_start:
            return self.pack(
                self.size,
                correlation_id,
                self.middle,
                info.base_offset,
                info.log_append_time_ms,
                info.log_start_offset,
                self.tail,
            )
        return self.pack(self.size, correlation_id, self.middle, info.base_offset, info.log_append_time_ms, self.tail)

    def full_reply(
        self, connection: RepeatingConnection, correlation_id: int, info: AppendInfo, code: ErrorCode, throttle_ms: int
    ) -> list[bytes | bytearray]:
        """The reply to a request that was appended and then not acknowledged, or that is throttled."""
        answer = PartitionProduceResponse(
            self.index, int(code), info.base_offset, info.log_append_time_ms, info.log_start_offset
        )
        response = self._response(answer)
        if code:
            services = connection.dispatcher.services
            context = RequestContext(self.version, connection.caller, correlation_id, connection, services)
            response = with_leaders(context, response)
        return frame_of(self.route, correlation_id, response, throttle_ms)


def records_of(view: memoryview, position: int, stop: int, flexible: bool) -> memoryview | None:
    """The records of a request, from their length at `position` on; None when the request holds something else as well
    or they belong to a transaction."""
    if flexible:
        length = view[position]
        position += 1
        if length > 127:
            length &= 127
            shift = 7
            while (byte := view[position]) > 127 and shift < 28:
                length |= (byte & 127) << shift
                shift += 7
                position += 1
            length |= byte << shift
            position += 1
        records = view[position : position + length - 1]
        if position + length + 2 != stop or view[stop - 3 : stop] != NO_TAGS:
            return None
    else:
        (length,) = _int32(view, position)
        position += 4
        if position + length != stop:
            return None
        records = view[position:stop]
    return None if records[_ATTRIBUTES_LOW] & _TRANSACTIONAL else records
