"""What the operating system offers beyond Python's own modules, and what it must be asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def raise_descriptor_limit() -> int:
    """Lifts the soft limit of open descriptors to the hard one; returns what holds now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    for limit in (wanted, 10240):  # macOS refuses more than OPEN_MAX
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
        except (ValueError, OSError):
            continue
    return soft


def load_libc(name: str) -> Callable[..., int] | None:
    """A function of the C library that Python does not offer, on Linux."""
    import sys

    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        call: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    return call


def load_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    found: Any = load_libc("sync_file_range")
    if found is not None:
        import ctypes

        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] | None = found
    return call
