"""The content of a quorum's `quorum-state` file, which is the JSON form of this message with its `data_version`."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int32, Int64, Uuid


class QuorumStateData(Message, versions=(0, 1), flexible=0):
    cluster_id: Annotated[str, until(0)] = ""
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: Annotated[Uuid, since(1)] = ZERO
    applied_offset: Annotated[Int64, until(0)] = 0
    current_voters: Annotated[list[Voter] | None, until(0)] = []


class Voter(Struct):
    voter_id: Int32 = 0
