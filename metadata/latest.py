"""The committed metadata as this broker has it: the publisher replaces the image, everybody else looks."""

from __future__ import annotations

from pylogd.metadata.image import ClusterImage


class LatestImage:
    __slots__ = ("image",)

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image if image is not None else ClusterImage()

    def address(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Where the broker says it is reached on a listener; None when it is not registered or has none such."""
        broker = self.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
