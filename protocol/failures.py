"""The response that says that a whole controller request failed, for APIs that have no error code at the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode


def _create_topics(request: Any, code: int, message: str | None) -> list[Any]:
    from pylogd.protocol.messages.create_topics import CreatableTopicResult

    return [CreatableTopicResult(name=t.name, error_code=code, error_message=message) for t in request.topics]


def _delete_topics(request: Any, code: int, message: str | None) -> list[Any]:
    from pylogd.protocol.messages.delete_topics import DeletableTopicResult

    results = [DeletableTopicResult(name=name, error_code=code, error_message=message) for name in request.topic_names]
    for topic in request.topics:
        results.append(
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
        )
    return results


def _create_partitions(request: Any, code: int, message: str | None) -> list[Any]:
    from pylogd.protocol.messages.create_partitions import CreatePartitionsTopicResult

    return [CreatePartitionsTopicResult(name=t.name, error_code=code, error_message=message) for t in request.topics]


def _configs(module_name: str) -> Callable[[Any, int, str | None], list[Any]]:
    def build(request: Any, code: int, message: str | None) -> list[Any]:
        from importlib import import_module

        module = import_module(f"pylogd.protocol.messages.{module_name}")
        return [
            module.AlterConfigsResourceResponse(
                resource_type=r.resource_type, resource_name=r.resource_name, error_code=code, error_message=message
            )
            for r in request.resources
        ]

    return build


def _reassignments(request: Any, code: int, message: str | None) -> list[Any]:
    from pylogd.protocol.messages import alter_partition_reassignments as m

    return [
        m.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                m.ReassignablePartitionResponse(
                    partition_index=p.partition_index, error_code=code, error_message=message
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _elections(request: Any, code: int, message: str | None) -> list[Any]:
    from pylogd.protocol.messages import elect_leaders as m

    return [
        m.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                m.PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]


# api -> (field of the response, what to put there); the rest of the response keeps its defaults
_PER_ITEM: dict[ApiKey, tuple[str, Callable[[Any, int, str | None], list[Any]]]] = {
    ApiKey.CREATE_TOPICS: ("topics", _create_topics),
    ApiKey.DELETE_TOPICS: ("responses", _delete_topics),
    ApiKey.CREATE_PARTITIONS: ("results", _create_partitions),
    ApiKey.ALTER_CONFIGS: ("responses", _configs("alter_configs")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", _configs("incremental_alter_configs")),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("responses", _reassignments),
    ApiKey.ELECT_LEADERS: ("replica_election_results", _elections),
}


def error_response(request: Any, code: ErrorCode, message: str | None) -> Any:
    """`request` answered with one error for all of it."""
    from pylogd.protocol.api import response_class

    key = ApiKey(request.API_KEY)
    response: Any = response_class(key)()
    if hasattr(response, "error_code"):
        response.error_code = int(code)
        if hasattr(response, "error_message"):
            response.error_message = message
    per_item = _PER_ITEM.get(key)
    if per_item is not None:
        field, build = per_item
        setattr(response, field, build(request, int(code), message))
    return response
