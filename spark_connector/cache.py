"""Where resolved jars are kept between runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

OVERRIDE = "PYLOGD_CACHE"


def cache_directory() -> Path:
    """$PYLOGD_CACHE, or `pylogd` where the desktop standard (XDG) keeps caches."""
    if chosen := os.environ.get(OVERRIDE):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pylogd"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """A folder, made if need be and held alone: two jobs may start at once and both find it empty."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
