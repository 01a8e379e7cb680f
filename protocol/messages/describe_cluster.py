"""Brokers or controllers of the cluster, and what the client may do with it."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.wire import Int8, Int16, Int32


class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[bool, since(2)] = False


class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -0x80000000


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, since(2)] = False
