"""Records of `__share_group_state`, framed like those of `__consumer_offsets`."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Uuid


class ShareSnapshotKey(Message, api_key=0, versions=(0, 0)):
    group_id: str = ""
    topic_id: Uuid = ZERO
    partition: Int32 = 0


class ShareSnapshotValue(Message, api_key=0, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, tagged(0, since=0)] = -1
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareUpdateKey(Message, api_key=1, versions=(0, 0)):
    group_id: str = ""
    topic_id: Uuid = ZERO
    partition: Int32 = 0


class ShareUpdateValue(Message, api_key=1, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, tagged(0, since=0)] = -1
    state_batches: list[StateBatch] = []
