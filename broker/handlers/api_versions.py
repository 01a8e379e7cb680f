"""ApiVersions (key 18): what this listener serves, and the cluster's features.

1  throttle time
2  throttling after the response
3  flexible; the client's name and version in the request; features in the response (KIP-511, KIP-584)
4  features whose lowest level is 0 are included: older clients could not read them (KAFKA-17492)

A version above these is answered with the error in version 0 and the versions of this API.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pylogd.metadata.feature_levels import KRAFT_VERSION, SUPPORTED_FEATURES
from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.served import Handler

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def of_unknown_version(row: Handler) -> SimpleNamespace:
    """Stands in for this module when a client is newer than this broker."""

    def answer(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        known = ApiVersion(int(ApiKey.API_VERSIONS), row.first, row.last)
        return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[known])

    return SimpleNamespace(handle=answer)


def handle(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    connection = ctx.connection
    if ctx.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if _SOFTWARE.fullmatch(name) is None or _SOFTWARE.fullmatch(version) is None:
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        connection.client_software_name = name
        connection.client_software_version = version
    services = ctx.services
    finalized = dict(services.image.finalized_features)
    if services.kraft_version > 0:
        finalized[KRAFT_VERSION] = services.kraft_version
    return ApiVersionsResponse(
        api_keys=[
            # Produce is advertised from 0 although it is served from 3: see protocol/api.py.
            ApiVersion(int(key), min(handler.first, APIS[key].advertised_first), handler.last)
            for key, handler in sorted(connection.supported.items())
            if not handler.hidden
        ],
        supported_features=[
            SupportedFeatureKey(name, levels.min, levels.max)
            for name, levels in SUPPORTED_FEATURES.items()
            if levels.min > 0 or ctx.version >= 4
        ],
        finalized_features_epoch=services.image.offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in finalized.items() if level],
    )
