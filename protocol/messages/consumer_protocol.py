"""What consumers of a classic group put into the opaque metadata and assignment bytes of JoinGroup and SyncGroup.

Both are preceded by their version as an int16.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int32


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: Annotated[list[TopicPartition], since(1), ignorable] = []
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[str | None, since(3), ignorable] = None


class TopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[TopicPartition] = []
    user_data: bytes | None = None
