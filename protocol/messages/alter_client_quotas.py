"""Set or remove client quotas.

Request and response differ in what they call EntryData: here the names are prefixed with Request and Response.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32


class AlterClientQuotasRequest(Message, api_key=49, versions=(0, 1), flexible=1):
    entries: list[RequestEntryData] = []
    validate_only: bool = False


class RequestEntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(Struct):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasResponse(Message, api_key=49, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData] = []


class ResponseEntryData(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = []
