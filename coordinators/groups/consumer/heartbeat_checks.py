"""What is refused about a heartbeat, and in which words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pylogd.coordinators.groups.consumer.member import JOINING, LEAVING, LEAVING_STATIC, Member
from pylogd.coordinators.groups.consumer.reconcile import Reported
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From this version on a member makes its own id.
_OWN_MEMBER_ID_SINCE = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    """Does it make sense by itself?"""
    epoch = request.member_epoch
    if version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVING:
        _check_text(request.member_id, "MemberId")
    _check_text(request.group_id, "GroupId")
    _check_text(request.instance_id, "InstanceId")
    _check_text(request.rack_id, "RackId")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(value: str | None, what: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{what} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_epoch(member: Member, epoch: int, owned: Reported) -> None:
    if epoch in (JOINING, member.member_epoch):
        return
    if epoch > member.member_epoch:
        how = "greater"
    else:
        # The response with the new epoch may have been lost: then it comes with the one before, and with nothing that
        # it has not got.
        if epoch == member.previous_epoch and owned is not None and _is_subset(owned, member):
            return
        how = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Mapping[bytes, Collection[int]], member: Member) -> bool:
    return all(
        topic_id in member.assigned and all(index in member.assigned[topic_id] for index in indexes)
        for topic_id, indexes in owned.items()
    )
