"""The clients that put load on a broker. Each runs in its own process, so that the measuring side never shares an
interpreter with it, and starts on a signal, so that its own start-up is not measured.

`Load("raw", "produce", {...})` starts `python -m bench.load raw produce '{...}'`, which sets up, prints `ready`, waits
for a line, works, and prints its result as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Load:
    """One load process."""

    def __init__(self, kind: str, function: str, arguments: dict[str, Any], cores: set[int]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", kind, function, json.dumps(arguments), ",".join(map(str, cores))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = f"{kind}.{function}"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"load {self.name} ended with exit code {self.process.wait()}")
        return line

    def ready(self) -> None:
        line = self._line()
        if line != "ready\n":
            raise RuntimeError(f"load {self.name} said {line!r} instead of ready")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._line())
        self.process.wait()
        return result

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def run_all(loads: list[Load]) -> list[dict[str, Any]]:
    """Starts all of them at one moment and gathers their results."""
    try:
        for load in loads:
            load.ready()
        for load in loads:
            load.go()
        return [load.result() for load in loads]
    finally:
        for load in loads:
            load.kill()
