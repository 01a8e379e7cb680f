"""Delete topics, from version 6 on also by id.

3 may answer TOPIC_DELETION_DISABLED, 5 THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, nullable, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class DeleteTopicsRequest(Message, api_key=20, versions=(1, 6), flexible=4):
    topics: Annotated[list[DeleteTopicState], since(6)] = []
    topic_names: Annotated[list[str], until(5), ignorable] = []
    timeout_ms: Int32 = 0


class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: Uuid = ZERO


class DeleteTopicsResponse(Message, api_key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


class DeletableTopicResult(Struct):
    name: Annotated[str | None, nullable(since=6)] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(5), ignorable] = None
