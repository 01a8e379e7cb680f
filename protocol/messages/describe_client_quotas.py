"""Client quotas that match a filter."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class DescribeClientQuotasRequest(Message, api_key=48, versions=(0, 1), flexible=1):
    components: list[ComponentData] = []
    strict: bool = False


class ComponentData(Struct):
    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


class DescribeClientQuotasResponse(Message, api_key=48, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


class EntryData(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    key: str = ""
    value: float = 0.0
