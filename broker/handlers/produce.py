"""Produce (key 0): append one batch per partition, acknowledge when the request's acks are met.

 3  transactional id; records in format 2
 5  log start offset in the response
 7  zstd
 8  record errors and a message per partition in the response
 9  flexible
10  the current leader and its address come with NOT_LEADER_OR_FOLLOWER (KIP-951)
11  the client knows retriable transaction errors (KIP-890)
12  partitions join a transaction without AddPartitionsToTxn (KIP-890)
13  topic ids instead of names (KIP-516)

Appending is immediate and in order. With acks=1 the reply follows at once (with `flush.messages=1`: once flushed); with
acks=all it waits for the high watermark or the request's time-out, and the connection goes on with the next Produce
meanwhile. A duplicate is answered with the offset of its original and waits like it. With acks=0 an error can only be
told by hanging up.
"""

from __future__ import annotations

from collections.abc import Awaitable

from pylogd.broker.network.context import RequestContext
from pylogd.broker.produce.admission import Admission, has_transactional_records
from pylogd.broker.produce.append import append, append_when_admitted
from pylogd.broker.produce.produce_form import resources
from pylogd.protocol.messages.produce import ProduceRequest, ProduceResponse
from pylogd.runtime.deferred import Deferred

__all__ = ["handle", "resources"]


def handle(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred | Awaitable[ProduceResponse | None] | None:
    if not has_transactional_records(request):
        return append(ctx, request, None)
    admission = Admission(ctx, request)
    if admission.ask() and not admission.concurrent:
        return append(ctx, request, admission)
    return append_when_admitted(ctx, request, admission)
