"""A broker registers with the controller and gets its epoch."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, UInt16, Uuid


class BrokerRegistrationRequest(Message, api_key=62, versions=(0, 4), flexible=0):
    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: Uuid = ZERO
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(2), ignorable] = []
    previous_broker_epoch: Annotated[Int64, since(3), ignorable] = -1


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationResponse(Message, api_key=62, versions=(0, 4), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
