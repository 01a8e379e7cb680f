"""`pylogd dev`: a whole cluster on this machine in one command.

Every node is an ordinary `pylogd --config` process with a configuration file and data of its own under the data folder,
so one of them can be killed, looked at or started by hand like any other broker. The first run writes the configuration
files, and later runs use them as they are: ports and data belong together. Log lines carry the number of their node.

The first signal stops every node cleanly, the second kills them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_READY = b" ready: "
#: Up to three nodes are controllers as well; more voters would only make every decision slower.
_CONTROLLERS_MAX = 3
#: Where controller listeners are when brokers listen on given ports.
_CONTROLLER_PORT_DISTANCE = 1000


class DevError(Exception):
    """A line for the user."""


class Plan(NamedTuple):
    """A new cluster: the broker port of every node, and the controller port of those that have one."""

    broker_ports: list[int]
    controller_ports: list[int]


def plan(brokers: int, first_port: int) -> Plan:
    """Ports counted up from `first_port`, or free ones for 0."""
    controllers = 1 if brokers < _CONTROLLERS_MAX else _CONTROLLERS_MAX
    if first_port:
        broker_ports = list(range(first_port, first_port + brokers))
        return Plan(broker_ports, [port + _CONTROLLER_PORT_DISTANCE for port in broker_ports[:controllers]])
    ports = _free_ports(brokers + controllers)
    return Plan(ports[:brokers], ports[brokers:])


def _free_ports(count: int) -> list[int]:
    """All held at once, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(sock.getsockname()[1]) for sock in held]
    for sock in held:
        sock.close()
    return ports


def configuration(node_id: int, data: Path, ports: Plan) -> str:
    """The `broker.toml` of one node."""
    replicas = min(len(ports.broker_ports), 3)
    listeners = [f"PLAINTEXT://127.0.0.1:{ports.broker_ports[node_id - 1]}"]
    roles = ["broker"]
    if node_id <= len(ports.controller_ports):
        listeners.append(f"CONTROLLER://127.0.0.1:{ports.controller_ports[node_id - 1]}")
        roles.append("controller")
    controllers = ",".join(f"127.0.0.1:{port}" for port in ports.controller_ports)
    log_dir = str(data / f"broker{node_id}" / "log").replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
"process.roles" = "{",".join(roles)}"
"node.id" = {node_id}
"listeners" = "{",".join(listeners)}"
"controller.listener.names" = "CONTROLLER"
"controller.quorum.bootstrap.servers" = "{controllers}"
"log.dirs" = "{log_dir}"
"default.replication.factor" = {replicas}
"min.insync.replicas" = {2 if replicas == 3 else 1}
"offsets.topic.replication.factor" = {replicas}
"transaction.state.log.replication.factor" = {replicas}
"transaction.state.log.min.isr" = {2 if replicas == 3 else 1}
"""


def prepare(data: Path, brokers: int, first_port: int) -> list[Path]:
    """The configuration files of all nodes, written if this is the first run."""
    if (data / "meta.properties").exists():
        raise DevError(f"{data} holds the data of a single node; choose another folder with --data")
    known = sorted(data.glob("broker*/broker.toml"), key=lambda path: int(path.parent.name[len("broker") :]))
    if known:
        if len(known) != brokers:
            raise DevError(f"{data} holds a cluster of {len(known)} brokers; use --brokers {len(known)} or --data")
        return known
    ports = plan(brokers, first_port)
    files = []
    for node_id in range(1, brokers + 1):
        path = data / f"broker{node_id}" / "broker.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(configuration(node_id, data.resolve(), ports))
        files.append(path)
    return files


def run(data: Path, brokers: int, first_port: int, overrides: Sequence[str]) -> int:
    """Runs the cluster until a signal or until no node is left; returns the exit code."""
    return asyncio.run(_Cluster(prepare(data, brokers, first_port), overrides).run())


class _Cluster:
    def __init__(self, files: list[Path], overrides: Sequence[str]) -> None:
        self._files = files
        self._overrides = overrides
        self._processes: list[asyncio.subprocess.Process] = []
        self._stopping = False
        self._addresses: dict[int, str] = {}

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)
        for path in self._files:
            self._processes.append(await self._start(path))
        readers = [self._follow(number, process) for number, process in enumerate(self._processes, 1)]
        codes = await asyncio.gather(*readers)
        return 0 if self._stopping and not any(codes) else 1

    async def _start(self, path: Path) -> asyncio.subprocess.Process:
        command = [sys.executable, "-P", "-m", "pylogd.cli.main", "--config", str(path)]
        for override in self._overrides:
            command += ["--set", override]
        # A session of its own: Ctrl-C reaches this process alone, which then stops the nodes in good order.
        return await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )

    async def _follow(self, number: int, process: asyncio.subprocess.Process) -> int:
        assert process.stderr is not None
        prefix = f"[{number}] ".encode()
        os.write(2, prefix + f"process {process.pid} runs {self._files[number - 1]}\n".encode())
        async for line in process.stderr:
            os.write(2, prefix + line)
            if _READY in line and number not in self._addresses:
                self._ready(number, line)
        code = await process.wait()
        if not self._stopping:
            os.write(2, prefix + f"exited with code {code}; the other brokers go on\n".encode())
        return code

    def _ready(self, number: int, line: bytes) -> None:
        self._addresses[number] = line.decode(errors="replace").partition("PLAINTEXT://")[2].partition(",")[0]
        if len(self._addresses) == len(self._files):
            servers = ",".join(self._addresses[node] for node in sorted(self._addresses))
            summary = f"cluster of {len(self._files)} is ready: bootstrap.servers={servers} (Ctrl-C stops it)\n"
            os.write(2, summary.encode())

    def _signalled(self) -> None:
        number = signal.SIGKILL if self._stopping else signal.SIGTERM
        self._stopping = True
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(number)
