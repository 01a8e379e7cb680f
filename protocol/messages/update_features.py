"""Change finalized feature levels.

2: the response has no result per feature, only one for all.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, until
from pylogd.protocol.wire import Int8, Int16, Int32


class UpdateFeaturesRequest(Message, api_key=57, versions=(0, 2), flexible=0):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[bool, since(1)] = False


class FeatureUpdateKey(Struct):
    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


class UpdateFeaturesResponse(Message, api_key=57, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: Annotated[list[UpdatableFeatureResult], until(1), ignorable] = []


class UpdatableFeatureResult(Struct):
    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
