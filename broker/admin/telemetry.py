"""Client telemetry (KIP-714), as in a Kafka that has no metrics receiver. A client that asks gets the subscription that
matches it, and may push at the pace it was told. What it pushes is checked and dropped.

Subscriptions are the CLIENT_METRICS configs of the cluster image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylogd.metadata.image import CLIENT_METRICS_RESOURCE
from pylogd.protocol import uuids
from pylogd.protocol.crc import crc32c
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from pylogd.config.broker import BrokerConfig
    from pylogd.metadata.latest import LatestImage
    from pylogd.protocol.messages.push_telemetry import PushTelemetryRequest
    from pylogd.runtime.clock import Clock

#: What a subscription's `match` may ask of a client, by name.
Attributes = Mapping[str, str]
#: Configs of each subscription, by name.
Subscriptions = dict[str, dict[str, str]]

INTERVAL_MS_DEFAULT = 300_000
ALL_METRICS = "*"
#: zstd, lz4, gzip, snappy: in the order of preference.
COMPRESSION_TYPES = [4, 3, 1, 2]
_INSTANCES_MAX = 16_384
_EXPIRY_MS_MIN = 60_000
_RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")


class ClientInstance:
    """One client and what it may push."""

    __slots__ = (
        "id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "last_seen_ms",
        "metrics",
        "subscription_id",
        "subscriptions",
        "terminating",
    )

    def __init__(self, instance_id: bytes, metrics: list[str], interval_ms: int, subscriptions: Subscriptions) -> None:
        self.id = instance_id
        self.metrics = metrics
        self.interval_ms = interval_ms
        #: The configs this was made from; another object means that they changed.
        self.subscriptions = subscriptions
        self.subscription_id = _subscription_id(instance_id, metrics, interval_ms)
        self.last_get_ms = 0
        self.last_push_ms = 0
        self.last_seen_ms = 0
        self.terminating = False
        self.last_error = ErrorCode.NONE


class ClientTelemetry:
    """The client instances of this broker, bounded, least recently seen first."""

    def __init__(self, config: BrokerConfig, clock: Clock, chance: Random, metadata: LatestImage) -> None:
        self._config = config
        self._clock = clock
        self._chance = chance
        self._metadata = metadata
        self._instances: dict[bytes, ClientInstance] = {}

    @property
    def max_bytes(self) -> int:
        size: int = self._config["telemetry.max.bytes"]
        return size

    def subscribe(self, client: Attributes, instance_id: bytes) -> ClientInstance:
        """The subscription of a client; a client without an id gets one. Asking too often is refused."""
        if instance_id == uuids.ZERO:
            instance_id = self._new_id()
        now_ms = self._clock.now_ms()
        instance = self._instance(client, instance_id, now_ms)
        if now_ms - max(instance.last_get_ms, instance.last_push_ms) >= instance.interval_ms:
            instance.last_get_ms = now_ms
        elif instance.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, client: Attributes, request: PushTelemetryRequest) -> None:
        """Check what a client pushes; KafkaError when it is refused."""
        if request.client_instance_id in _RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.now_ms()
        instance = self._instance(client, request.client_instance_id, now_ms)
        try:
            self._check_push(instance, request, now_ms)
            instance.last_error = ErrorCode.NONE
        except KafkaError as refusal:
            instance.last_error = refusal.code
            raise
        finally:
            instance.terminating = request.terminating

    def _check_push(self, instance: ClientInstance, request: PushTelemetryRequest, now_ms: int) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        # The first push after a subscription may come early: clients spread themselves over the interval.
        if instance.last_get_ms > instance.last_push_ms or now_ms - instance.last_push_ms >= instance.interval_ms:
            instance.last_push_ms = now_ms
        elif not request.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not 0 <= request.compression_type <= 4:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _new_id(self) -> bytes:
        while True:
            made = self._chance.randbytes(16)
            if made not in self._instances and made not in _RESERVED_IDS:
                return made

    def _instance(self, client: Attributes, instance_id: bytes, now_ms: int) -> ClientInstance:
        subscriptions = self._subscriptions()
        instance = self._instances.pop(instance_id, None)
        if instance is not None and (
            instance.subscriptions != subscriptions
            or now_ms - instance.last_seen_ms > max(_EXPIRY_MS_MIN, 3 * instance.interval_ms)
        ):
            instance = None
        if instance is None:
            instance = _match(client, instance_id, subscriptions)
            if len(self._instances) >= _INSTANCES_MAX:
                del self._instances[next(iter(self._instances))]
        instance.last_seen_ms = now_ms
        self._instances[instance_id] = instance
        return instance

    def _subscriptions(self) -> Subscriptions:
        configs = self._metadata.image.configs
        return {name: dict(values) for (kind, name), values in configs.items() if kind == CLIENT_METRICS_RESOURCE}


def _match(client: Attributes, instance_id: bytes, subscriptions: Subscriptions) -> ClientInstance:
    attributes = {**client, "client_instance_id": uuids.to_text(instance_id)}
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions.values():
        if _matches(_list(subscription.get("match")), attributes):
            metrics.update(_list(subscription.get("metrics")))
            interval_ms = min(interval_ms, int(subscription.get("interval.ms", INTERVAL_MS_DEFAULT)))
    wanted = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
    return ClientInstance(instance_id, wanted, interval_ms, subscriptions)


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _matches(patterns: list[str], attributes: Mapping[str, str]) -> bool:
    for pattern in patterns:
        name, _, expression = pattern.partition("=")
        if re.fullmatch(expression.strip(), attributes.get(name.strip(), "")) is None:
            return False
    return True


def _subscription_id(instance_id: bytes, metrics: list[str], interval_ms: int) -> int:
    """Changes with the subscription and differs between clients; a signed 32-bit number."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    folded = 0
    for start in range(0, 16, 4):
        folded ^= int.from_bytes(instance_id[start : start + 4], "big")
    return int.from_bytes((checksum ^ folded).to_bytes(4, "big"), "big", signed=True)
