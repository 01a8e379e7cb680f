"""The committed metadata as this broker has it: the publisher replaces the image, everybody else looks."""

from __future__ import annotations

from pylogd.metadata.image import ClusterImage


class LatestImage:
    __slots__ = ("image",)

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image if image is not None else ClusterImage()
