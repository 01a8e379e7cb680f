"""Keys and values of control records: transaction markers and what KRaft writes into its log and snapshots.

A control record's key is a ControlRecordTypeSchema: its version, then the type of the record. Two structs are called
Voter in Kafka; that of LeaderChangeMessage is LeaderChangeVoter here.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, UInt16, Uuid


class ControlRecordTypeSchema(Message, versions=(0, 0)):
    type: Int16 = 0


class EndTxnMarker(Message, versions=(0, 0)):
    coordinator_epoch: Int32 = 0


class LeaderChangeMessage(Message, versions=(0, 1), flexible=0):
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[LeaderChangeVoter] = []
    granting_voters: list[LeaderChangeVoter] = []


class LeaderChangeVoter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO


class SnapshotHeaderRecord(Message, versions=(0, 0), flexible=0):
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooterRecord(Message, versions=(0, 0), flexible=0):
    version: Int16 = 0


class KRaftVersionRecord(Message, versions=(0, 0), flexible=0):
    version: Int16 = 0
    kraft_version: Int16 = 0


class VotersRecord(Message, versions=(0, 0), flexible=0):
    version: Int16 = 0
    voters: list[Voter] = []


class Voter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = DEFAULT


class Endpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0
