"""A controller registers with the active controller."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, UInt16, Uuid


class ControllerRegistrationRequest(Message, api_key=70, versions=(0, 0), flexible=0):
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO
    zk_migration_ready: bool = False
    listeners: list[Listener] = []
    features: list[Feature] = []


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ControllerRegistrationResponse(Message, api_key=70, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
