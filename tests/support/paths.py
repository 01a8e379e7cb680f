"""Where the checkout and its cache are. The cache holds what set-up makes (jars, classes) and is never committed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from pylogd.spark_connector.cache import locked

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache"
SUPPORT = CHECKOUT / "tests" / "support"


def cache_lock(name: str) -> AbstractContextManager[Path]:
    """A folder of the cache, held alone."""
    return locked(CACHE / name)
