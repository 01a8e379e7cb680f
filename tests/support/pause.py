"""Stopping a process in its tracks, as a machine that hangs would."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from support.wait import eventually


def pause(pid: int) -> None:
    """SIGSTOP takes a moment; when this returns, the process does nothing more until SIGCONT."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: is_paused(pid))


def is_paused(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
