"""The error of every part of the image whose records do not add up."""

from __future__ import annotations


class ReplayError(Exception):
    """A record does not fit the state before it: the log is not one that a controller wrote."""
