"""Metadata: brokers, topics, partitions and their leaders.

Versions: 1 added controller id, racks, internal topics, and null for all topics (an empty list is none; in 0 it is
all); 2 cluster id; 3 throttle time; 4 the client may forbid auto-creation; 5 offline replicas; 6 LISTENER_NOT_FOUND; 7
leader epochs; 8 authorized operations; 9 flexible; 10 topic ids in responses; 11 no cluster operations any more; 12
topics by id; 13 a top-level error code, with which a broker can ask a client to bootstrap again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.broker.admin.topic_view import ListenerView, metadata_partitions, missing_topic_code
from pylogd.broker.network.client_endpoints import broker_address
from pylogd.metadata.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext


def handle(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version = ctx.version
    services = ctx.services
    image = services.image
    wanted = request.topics
    if version == 0 and not wanted:
        wanted = None
    if wanted is not None and 10 <= version < 12:
        _check_topics(wanted, version)

    response = MetadataResponse(cluster_id=services.cluster_id)
    alive = []
    for broker in image.brokers.values():
        if broker.fenced:
            continue
        alive.append(broker.id)
        address = broker_address(ctx, broker)
        if address is not None:
            host, port = address
            response.brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
    # Clients send admin requests to "the controller": any broker will do, each passes them on.
    response.controller_id = services.broker_id if services.broker_id in alive else alive[0] if alive else -1

    view = ListenerView(image, ctx.caller.listener)
    response.topics = _topics(ctx, request, view, wanted)
    if version >= 8:
        if version <= 10 and request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def _check_topics(topics: list[Any], version: int) -> None:
    for topic in topics:
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if topic.topic_id != ZERO:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}"
            )


def _topics(
    ctx: RequestContext, request: MetadataRequest, view: ListenerView, wanted: list[MetadataRequestTopic] | None
) -> list[MetadataResponseTopic]:
    """The topics asked for; all of them when `wanted` is None."""
    image, version = ctx.services.image, ctx.version
    found = []
    if wanted is None:
        names = list(image.topics)
    else:
        ids = dict.fromkeys(bytes(topic.topic_id) for topic in wanted if topic.topic_id != ZERO)
        names = []
        for topic_id in ids:
            known = image.topic_by_id(topic_id)
            if known is None:
                found.append(_missing(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
            else:
                names.append(known.name)
        if not ids:
            names = list(dict.fromkeys(topic.name or "" for topic in wanted))
    missing = []
    for name in names:
        topic = image.topics.get(name)
        if topic is None or not topic.partitions:
            missing.append(name)
            continue
        found.append(
            MetadataResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=metadata_partitions(view, topic.partitions, version, MetadataResponsePartition),
            )
        )
    if missing and wanted is not None:
        creatable = []
        for name in missing:
            code = missing_topic_code(name)
            found.append(_missing(code, name, ZERO))
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                creatable.append(name)
        if creatable and request.allow_auto_topic_creation and ctx.services.config["auto.create.topics.enable"]:
            ctx.services.topic_creation.create(creatable, ctx.caller)
    return found


def _missing(code: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)
