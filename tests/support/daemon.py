"""A broker process under test, pylogd's or Kafka's: started from the same server.properties, stopped by its id.

The base of `support.broker.Pylogd` and `support.kafka.ApacheKafka`; both answer to the same names, so that one
behaviour test runs against either.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

from support.ports import free_ports
from support.wire import broker_count

HOST = "127.0.0.1"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _as_a_child() -> None:
    """A test run that is killed leaves no broker behind (Linux; elsewhere there is no such call), and one that a shell
    put in the background does not hand down that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon(ABC):
    name = "broker"
    start_timeout_s = 120.0
    stop_timeout_s = 120.0

    def __init__(self, directory: Path, properties: dict[str, str] | None = None, node_id: int = 1) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self.node_id = node_id
        self.extra = dict(properties or {})
        self.port, self.controller_port = free_ports(2)
        if "listeners" in self.extra:
            # A test that takes over another broker's address says so with its listeners.
            self.port = int(self.extra["listeners"].split(",")[0].rsplit(":", 1)[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / f"{self.name}.log"

    # -- settings

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Test topics come and go; what is deleted must not wait a minute on the disk.
            "log.segment.delete.delay.ms": "1000",
            **self.extra,
        }

    def write_properties(self) -> Path:
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        return path

    # -- life

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the broker process."""

    def prepare(self) -> None:
        """What must happen before a start."""
        self.write_properties()

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def launch(self) -> None:
        """Starts without waiting: nodes of a cluster may need each other to become ready."""
        assert self.process is None, "already started"
        self.prepare()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
                preexec_fn=_as_a_child,
            )

    def start(self) -> Daemon:
        self.launch()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode} at start\n{self.log_tail()}")
            try:
                if broker_count(HOST, self.port) > 0:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not serve after {self.start_timeout_s} s\n{self.log_tail()}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self.process is not None, "not running"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Power failure as the process sees it: no warning, no clean-up."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self) -> int:
        """SIGTERM, then wait; the exit code."""
        assert self.process is not None, "not running"
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"{self.name} did not stop on SIGTERM\n{self.log_tail()}") from None
        self.process = None
        return code

    def stop(self) -> None:
        """A clean stop, asserted; harmless when already stopped."""
        if self.process is not None:
            self.assert_alive()
            code = self.terminate()
            assert code in self.clean_exit_codes, f"{self.name} exited with {code}\n{self.log_tail()}"
        self.assert_log_clean()

    clean_exit_codes: tuple[int, ...] = (0,)

    def restart(self) -> None:
        self.stop()
        self.start()

    # -- what it says

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, chars: int = 6000) -> str:
        return self.log_text()[-chars:]

    def assert_alive(self) -> None:
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"{self.name} died with {code}\n{self.log_tail()}"

    # In the log, what its authors did not foresee; empty when nothing can be told from it.
    unforeseen = ""

    def assert_log_clean(self) -> None:
        text = self.log_text()
        at = text.find(self.unforeseen) if self.unforeseen else -1
        assert at < 0, f"an exception nobody handled:\n{text[max(0, at - 500) : at + 4000]}"

    # -- what it uses (Linux)

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
