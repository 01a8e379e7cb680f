"""How much a test does: little in `make test`, the full number in `make soak` (PYLOGD_SOAK=1)."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("PYLOGD_SOAK", "") not in ("", "0")


def scaled(*, test: T, soak: T) -> T:
    return soak if SOAK else test
