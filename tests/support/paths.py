"""Where the checkout and its cache are. The cache holds what set-up makes (jars, classes) and is never committed."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache"
SUPPORT = CHECKOUT / "tests" / "support"


@contextlib.contextmanager
def cache_lock(name: str) -> Iterator[Path]:
    """A folder of the cache, held alone: two test runs may start at once and both find it empty."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
