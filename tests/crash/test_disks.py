"""A disk that fills up, and a disk that fails, under a real broker.

The small disk is a tmpfs in a mount namespace of the broker's own, which the test reaches through the process's root
in /proc.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from pylogd.protocol.errors import ErrorCode
from support.admin import Admin
from support.broker import Pylogd
from support.clients import Confluent
from support.produce import produce_request, records
from support.rawclient import Client
from support.wait import eventually

confluent = Confluent()
DISK_BYTES = 24 << 20
FILLER_BYTES = 8 << 20
UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    if not shutil.which("unshare"):
        return False
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


class SmallDisk(Pylogd):
    """pylogd with its data on a tmpfs that nobody else sees."""

    disk_bytes = DISK_BYTES

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        script = f'mount -t tmpfs -o size={self.disk_bytes} none "$0" && exec "$@"'
        return [*UNSHARE, "sh", "-c", script, str(self.data), *super().command()]

    @property
    def inside(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.data}")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallDisk]:
    if not can_mount(tmp_path):
        pytest.skip("needs a mount namespace (unshare)")
    settings = {"log.segment.bytes": "1048576", "log.flush.interval.messages": "1"}
    # The metadata log lies on the same disk and grows while nothing happens: the last of the room goes fast.
    daemon = SmallDisk(tmp_path / "node", {**settings, "metadata.max.idle.interval.ms": "20"})
    daemon.start()
    yield daemon
    daemon.stop()


def test_full_disk(broker: SmallDisk) -> None:
    """Writes fail with KAFKA_STORAGE_ERROR, reads go on, and it heals by itself when space returns."""
    Admin(broker.bootstrap).create("filling")
    filler = broker.inside / "filler"
    filler.write_bytes(bytes(FILLER_BYTES))
    value = os.urandom(100_000)
    placed: list[tuple[int, bytes]] = []
    with Client(broker.port) as client:

        def send(number: int) -> ErrorCode:
            data = number.to_bytes(8, "big") + value
            answer = client.ask(produce_request("filling", records(data)), 9)
            part = answer.responses[0].partition_responses[0]
            if part.error_code == 0:
                placed.append((part.base_offset, data))
            return ErrorCode(part.error_code)

        codes = []
        for number in range(DISK_BYTES // len(value) + 10):
            codes.append(send(number))
            if codes[-1]:
                break
        assert codes[-1] is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(placed) > 50
        fill_up(broker.inside / "rest")
        eventually(lambda: "the disk of the metadata log" in broker.log_text())
        with pytest.raises(KafkaException, match=r"KAFKA_STORAGE_ERROR|Disk error"):
            Admin(broker.bootstrap).create("refused")
        # Full is not broken: what was acknowledged is served, and so is the rest of the broker.
        found = confluent.consume(broker.bootstrap, "filling", len(placed))
        assert [(m.offset, m.value) for m in found] == placed
        assert confluent.watermarks(broker.bootstrap, "filling") == (0, len(placed))
        assert send(1000) is ErrorCode.KAFKA_STORAGE_ERROR
        (broker.inside / "rest").unlink()
        filler.unlink()
        before = len(placed)
        eventually(lambda: send(2000) is ErrorCode.NONE)
        for number in range(3000, 3020):
            assert send(number) is ErrorCode.NONE
    assert [offset for offset, _ in placed] == list(range(before + 21))
    found = confluent.consume(broker.bootstrap, "filling", len(placed))
    assert [(m.offset, m.value) for m in found] == placed
    assert "space" in broker.log_text().lower()
    Admin(broker.bootstrap).create("accepted")


def fill_up(path: Path) -> None:
    """Takes what room is left, to the last byte."""
    with open(path, "wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


@pytest.mark.parametrize("pages", [1, 4])
def test_no_start_on_a_full_disk(tmp_path: Path, pages: int) -> None:
    """Neither formatting nor the first records of the metadata log find room: one line says so, with the place."""
    if not can_mount(tmp_path):
        pytest.skip("needs a mount namespace (unshare)")
    node = SmallDisk(tmp_path / "node")
    node.disk_bytes = pages * 4096
    node.prepare()
    done = subprocess.run(node.command(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert re.search(f"cannot start: .*{node.data}.*(No space left|is full)|The disk of {node.data}.* is full", line)


def test_failed_disk(new_pylogd: Callable[..., Pylogd], tmp_path: Path) -> None:
    """One of two log directories loses its files: its partitions go offline, the others do not notice."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    dirs = {"log.dirs": f"{good},{bad}", "metadata.log.dir": str(good), "log.segment.bytes": "1048576"}
    broker = new_pylogd(dirs)
    Admin(broker.bootstrap).create("spread", partitions=10)
    with Client(broker.port) as client:

        def send(partition: int, size: int = 1) -> ErrorCode:
            answer = client.ask(produce_request("spread", records(b"x" * size), partition), 9)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code)

        assert {send(p) for p in range(10)} == {ErrorCode.NONE}
        homes = {p: bad if (bad / f"spread-{p}").exists() else good for p in range(10)}
        assert set(homes.values()) == {good, bad}
        for partition, home in homes.items():
            if home == bad:
                shutil.rmtree(bad / f"spread-{partition}")
        # The next segment cannot be made where the folder is missing.
        lost = next(p for p, home in homes.items() if home == bad)
        assert send(lost, 600_000) is ErrorCode.NONE
        assert send(lost, 600_000) is ErrorCode.KAFKA_STORAGE_ERROR
        refused = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        for partition, home in homes.items():
            if home == good:
                assert send(partition) is ErrorCode.NONE
            else:
                assert send(partition) in refused
    for partition in (p for p in range(10) if homes[p] == good):
        assert confluent.watermarks(broker.bootstrap, "spread", partition) == (0, 2)
