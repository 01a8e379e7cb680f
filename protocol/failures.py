"""The response to a request that failed as a whole, for every API at every version.

Most responses have an error code of their own, and need no row here. The others carry the error with each thing that
the request named: `_ROWS` says where. Message classes are imported when a request of theirs has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogd.protocol.api import ApiKey, response_class
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.schema import Message, Struct, fields

if TYPE_CHECKING:
    from pylogd.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from pylogd.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from pylogd.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from pylogd.protocol.messages.fetch import FetchRequest, FetchResponse
    from pylogd.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from pylogd.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from pylogd.protocol.messages.metadata import MetadataRequest, MetadataResponse
    from pylogd.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from pylogd.protocol.messages.produce import ProduceRequest, ProduceResponse
    from pylogd.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


def error_response(request: Message, version: int, code: ErrorCode, message: str | None) -> Any:
    """`request` answered with one error for all of it. None when the only answer is to close the connection."""
    key = ApiKey(request.API_KEY)
    code = known_code(key, version, code)
    row = _ROWS.get(key)
    if row is not None and not isinstance(row, Each):
        return row(request, version, code, message)
    response: Any = response_class(key)()
    if "error_code" in type(response)._defaults:
        _mark(response, code, message)
    elif row is None:
        return None
    if row is not None:
        setattr(response, row.answered, row.results(type(response), request, code, message))
    return response


def known_code(key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """The error as a client that speaks this version of the API knows it."""
    if key is ApiKey.TXN_OFFSET_COMMIT:
        code = _OF_COORDINATOR.get(code, code)
    since, instead = _NEWER_CODES.get((key, code), (0, code))
    return code if version >= since else instead


#: What a failed question to a transaction's coordinator, or a failed write of offsets, means to the producer.
_OF_COORDINATOR = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
#: The first version that knows a code, and what older ones are told.
_NEWER_CODES = {
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED): (4, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
}


# -- one result for each thing that was asked for


class Each(NamedTuple):
    """The items in field `asked` of the request are answered one by one in field `answered` of the response.

    `names` are the fields that an item and its result have in common. An item that is a bare string or number goes to
    the only name there is. With `inner` it is not the result itself that has an error code, but what it lists.
    """

    asked: str
    answered: str
    names: tuple[str, ...]
    inner: Each | None = None
    values: Mapping[str, Any] = {}

    def results(self, parent: type[Struct], request: Any, code: ErrorCode, message: str | None) -> list[Any]:
        [cls] = [field.struct for field in fields(parent) if field.name == self.answered]
        assert cls is not None
        return [self._result(cls, item, code, message) for item in getattr(request, self.asked) or ()]

    def _result(self, cls: type[Struct], item: Any, code: ErrorCode, message: str | None) -> Any:
        if isinstance(item, Struct):
            result: Any = cls(**{name: getattr(item, name) for name in self.names}, **self.values)
        else:
            [name] = self.names
            result = cls(**{name: item}, **self.values)
        if self.inner is None:
            _mark(result, code, message)
        else:
            setattr(result, self.inner.answered, self.inner.results(cls, item, code, message))
        return result


def _mark(answer: Any, code: ErrorCode, message: str | None) -> None:
    answer.error_code = int(code)
    if "error_message" in type(answer)._defaults:
        answer.error_message = message


# -- responses with a rule of their own


def _produce(request: ProduceRequest, version: int, code: ErrorCode, message: str | None) -> ProduceResponse | None:
    """With acks=0 nobody reads a response: closing the connection is the only way to tell."""
    from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

    if request.acks == 0:
        return None
    topics = []
    for topic in request.topic_data:
        answers = [
            PartitionProduceResponse(data.index, int(code), -1, error_message=message) for data in topic.partition_data
        ]
        if answers:
            topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    return ProduceResponse(topics)


def _fetch(request: FetchRequest, version: int, code: ErrorCode, message: str | None) -> FetchResponse:
    """Before topic ids every partition carries the error: the first versions have no other place for it."""
    from pylogd.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    topics = [
        FetchableTopicResponse(
            topic.topic,
            partitions=[
                PartitionData(asked.partition, int(code), -1, -1, -1, records=b"") for asked in topic.partitions
            ],
        )
        for topic in (request.topics if version < 13 else [])
    ]
    return FetchResponse(error_code=int(code), session_id=request.session_id, responses=topics)


def _metadata(request: MetadataRequest, version: int, code: ErrorCode, message: str | None) -> MetadataResponse:
    """Before version 13 there is no error code for the whole: every topic asked for carries it."""
    from pylogd.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

    topics = [
        MetadataResponseTopic(error_code=int(code), name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=int(code) if version >= 13 else 0)


def _offset_fetch(
    request: OffsetFetchRequest, version: int, code: ErrorCode, message: str | None
) -> OffsetFetchResponse:
    """Version 1 has no error for the whole: every partition carries it. From version 8 on every group does."""
    from pylogd.protocol.messages import offset_fetch as m

    if version >= 8:
        groups = [m.OffsetFetchResponseGroup(group.group_id, error_code=int(code)) for group in request.groups]
        return m.OffsetFetchResponse(groups=groups)
    if version >= 2:
        return m.OffsetFetchResponse(error_code=int(code))
    topics = [
        m.OffsetFetchResponseTopic(
            topic.name,
            [m.OffsetFetchResponsePartition(index, -1, error_code=int(code)) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return m.OffsetFetchResponse(topics=topics)


def _join_group(request: JoinGroupRequest, version: int, code: ErrorCode, message: str | None) -> JoinGroupResponse:
    """Before version 7 the protocol's name cannot be null."""
    from pylogd.protocol.messages.join_group import JoinGroupResponse

    return JoinGroupResponse(error_code=int(code), protocol_name=None if version >= 7 else "")


def _init_producer_id(
    request: InitProducerIdRequest, version: int, code: ErrorCode, message: str | None
) -> InitProducerIdResponse:
    """The epoch of no producer is -1, although the field's default is 0."""
    from pylogd.protocol.messages.init_producer_id import InitProducerIdResponse

    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)


def _delete_topics(
    request: DeleteTopicsRequest, version: int, code: ErrorCode, message: str | None
) -> DeleteTopicsResponse:
    """Topics are named in one list before version 6, and by name or id in another since."""
    from pylogd.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

    results = [DeletableTopicResult(name, error_code=int(code), error_message=message) for name in request.topic_names]
    results += [DeletableTopicResult(topic.name, topic.topic_id, int(code), message) for topic in request.topics]
    return DeleteTopicsResponse(responses=results)


def _add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, version: int, code: ErrorCode, message: str | None
) -> AddPartitionsToTxnResponse:
    """Since brokers ask for several transactions at once (version 4), there is an error for the whole."""
    from pylogd.protocol.messages import add_partitions_to_txn as m

    if version >= 4:
        return m.AddPartitionsToTxnResponse(error_code=int(code))
    topics: dict[str, dict[int, m.AddPartitionsToTxnPartitionResult]] = {}
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            topics.setdefault(topic.name, {})[index] = m.AddPartitionsToTxnPartitionResult(index, int(code))
    return m.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            m.AddPartitionsToTxnTopicResult(name, list(rows.values())) for name, rows in topics.items()
        ]
    )


def _write_txn_markers(
    request: WriteTxnMarkersRequest, version: int, code: ErrorCode, message: str | None
) -> WriteTxnMarkersResponse:
    """Markers of one producer are answered together, whatever the order they were asked for in."""
    from pylogd.protocol.messages import write_txn_markers as m

    producers: dict[int, dict[str, list[m.WritableTxnMarkerPartitionResult]]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            rows = producers.setdefault(marker.producer_id, {}).setdefault(topic.name, [])
            rows += [m.WritableTxnMarkerPartitionResult(index, int(code)) for index in topic.partition_indexes]
    return m.WriteTxnMarkersResponse(
        markers=[
            m.WritableTxnMarkerResult(
                producer_id, [m.WritableTxnMarkerTopicResult(name, rows) for name, rows in topics.items()]
            )
            for producer_id, topics in producers.items()
        ]
    )


def _describe_groups(
    request: DescribeGroupsRequest, version: int, code: ErrorCode, message: str | None
) -> DescribeGroupsResponse:
    """As in Kafka the message stays here, although version 6 has room for it."""
    from pylogd.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse

    return DescribeGroupsResponse(groups=[DescribedGroup(int(code), group_id=name) for name in request.groups])


# -- the table

_PARTITIONS = Each("partitions", "partitions", ("partition_index",))
_RESOURCE = ("resource_type", "resource_name")

_ROWS: dict[ApiKey, Each | Callable[[Any, int, ErrorCode, str | None], Any]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: Each("topics", "topics", ("name",), _PARTITIONS),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: Each("topics", "topics", ("name", "topic_id"), _PARTITIONS),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CREATE_TOPICS: Each("topics", "topics", ("name",)),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: Each(
        "topics",
        "topics",
        ("name",),
        Each("partitions", "partitions", ("partition_index",), values={"low_watermark": -1}),
    ),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Each(
        "topics", "topics", ("topic",), Each("partitions", "partitions", ("partition",))
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: Each("topics", "topics", ("name",), _PARTITIONS),
    ApiKey.DESCRIBE_CONFIGS: Each("resources", "results", _RESOURCE),
    ApiKey.ALTER_CONFIGS: Each("resources", "responses", _RESOURCE),
    ApiKey.CREATE_PARTITIONS: Each("topics", "results", ("name",)),
    ApiKey.DELETE_GROUPS: Each("groups_names", "results", ("group_id",)),
    ApiKey.ELECT_LEADERS: Each(
        "topic_partitions",
        "replica_election_results",
        ("topic",),
        Each("partitions", "partition_result", ("partition_id",)),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Each("resources", "responses", _RESOURCE),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Each("topics", "responses", ("name",), _PARTITIONS),
    ApiKey.DESCRIBE_PRODUCERS: Each(
        "topics", "topics", ("name",), Each("partition_indexes", "partitions", ("partition_index",))
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Each("transactional_ids", "transaction_states", ("transactional_id",)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Each("group_ids", "groups", ("group_id",)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Each("topics", "topics", ("name",)),
}
