"""Which broker coordinates a group, a transactional id or a share partition.

4 asks for several keys at once; 6 knows key type 2, share: "groupId:topicId:partition".
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, until
from pylogd.protocol.wire import Int8, Int16, Int32


class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible=3):
    key: Annotated[str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[str], since(4)] = []


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[str | None, since(1), until(3), ignorable] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []


class Coordinator(Struct):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
