"""Forget the start offsets of a share group for some topics."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions=(0, 0), flexible=0):
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: Uuid = ZERO
    error_code: Int16 = 0
    error_message: str | None = None
