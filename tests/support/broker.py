"""A pylogd of its own: the installed command as a real process on free ports."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from support.daemon import Daemon


class Pylogd(Daemon):
    name = "pylogd"
    unforeseen = "Traceback (most recent call last)"

    def command(self) -> list[str]:
        program = Path(sysconfig.get_path("scripts")) / "pylogd"
        return [str(program), "--config", str(self.directory / "server.properties")]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
