"""What this broker serves, and the cluster features.

Answered even if the version is unknown: then in version 0 with UNSUPPORTED_VERSION and the supported range of this
API. The response header never has tags. Before version 4 a feature whose minimum is 0 is left out (KAFKA-17011).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, tagged
from pylogd.protocol.wire import Int16, Int32, Int64


class ApiVersionsRequest(Message, api_key=18, versions=(0, 4), flexible=3):
    client_software_name: Annotated[str, since(3), ignorable] = ""
    client_software_version: Annotated[str, since(3), ignorable] = ""


class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible=3):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], tagged(0, since=3), ignorable] = []
    finalized_features_epoch: Annotated[Int64, tagged(1, since=3), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], tagged(2, since=3), ignorable] = []
    zk_migration_ready: Annotated[bool, tagged(3, since=3), ignorable] = False


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0
