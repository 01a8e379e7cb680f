"""The audit in one process: the files of a broker are in order, and each damage is found for what it is."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pylogd.audit import audit
from pylogd.audit.audit_command import main
from pylogd.audit.model import Kind
from pylogd.protocol import batch as batches
from pylogd.storage import checkpoint_file
from pylogd.storage.directories.directory import CLEAN_SHUTDOWN_FILE
from support.admin import Admin
from support.broker import Pylogd
from support.daemon import Daemon

pytestmark = pytest.mark.pylogd_only
PARTITION = "audited-0"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that was stopped: transactions with both outcomes, several segments."""
    broker = Pylogd(tmp_path_factory.mktemp("audited"))
    broker.start()
    Admin(broker.bootstrap).create("audited", segment_bytes=1 << 20)
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "writer", "batch.size": 8_000}
    producer = Producer(settings)
    producer.init_transactions(30)
    chance = random.Random(1)
    for number in range(12):
        producer.begin_transaction()
        for _ in range(100):
            producer.produce("audited", chance.randbytes(2_000))
        producer.flush(30)
        producer.abort_transaction(30) if number % 3 == 0 else producer.commit_transaction(30)
    broker.stop()
    return broker.data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


def found(*directories: Path) -> list[tuple[str, str, int | None]]:
    report = audit(list(map(str, directories)))
    return [(finding.kind, finding.file, finding.offset) for _, finding in report.findings]


def segments(data: Path, suffix: str = ".log") -> list[Path]:
    return sorted((data / PARTITION).glob(f"*{suffix}"))


def change(path: Path, position: int, flip: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= flip
    path.write_bytes(content)


def headers(path: Path) -> list[tuple[int, batches.BatchHeader]]:
    return list(batches.iter_headers(path.read_bytes()))


def test_a_stopped_broker_left_nothing_wrong(data: Path) -> None:
    assert found(data) == []
    assert len(segments(data)) > 2
    assert segments(data, ".txnindex")


def test_every_flipped_bit_of_a_batch_is_found(data: Path) -> None:
    """Whichever byte of a batch it is in. The leader epoch and the offset are not covered by the checksum."""
    path = segments(data)[1]
    position, header = headers(path)[5]
    original = path.read_bytes()
    for byte in [*range(batches.HEADER_SIZE), header.length // 2, header.length - 1]:
        change(path, position + byte, 1 << byte % 8)
        kinds = {kind for kind, file, _ in found(data) if file == path.name}
        assert kinds & {Kind.CORRUPT, Kind.OFFSETS, Kind.GAP, Kind.EPOCHS, Kind.TORN}, byte
        path.write_bytes(original)
    assert found(data) == []


def test_a_batch_of_garbage_hides_nothing_behind_it(data: Path) -> None:
    path = segments(data)[0]
    places = headers(path)
    for number in (3, len(places) - 3):
        position, header = places[number]
        content = path.read_bytes()
        garbage = random.Random(2).randbytes(header.length)
        path.write_bytes(content[:position] + garbage + content[position + header.length :])
    first, second = [offset for kind, _, offset in found(data) if kind == Kind.CORRUPT]
    assert (first, second) == (places[3][1].base_offset, places[-3][1].base_offset)


def test_wrong_indexes(data: Path) -> None:
    offsets, times, aborted = (segments(data, suffix)[0] for suffix in (".index", ".timeindex", ".txnindex"))
    for path, position, kind in (
        (offsets, 8 + 3, Kind.INDEX),  # an offset
        (offsets, 8 + 7, Kind.INDEX),  # a position
        (times, 7, Kind.TIME_INDEX),
        (times, 10, Kind.TIME_INDEX),
        (aborted, 2 + 8 + 8 + 7, Kind.TXN_INDEX),
    ):
        original = path.read_bytes()
        change(path, position)
        assert [(name, file) for name, file, _ in found(data)] == [(kind, path.name)], position
        path.write_bytes(original)
    for path, kind in ((offsets, Kind.INDEX), (times, Kind.TIME_INDEX), (aborted, Kind.TXN_INDEX)):
        original = path.read_bytes()
        path.unlink()
        assert [(name, file) for name, file, _ in found(data)] == [(kind, path.name)]
        path.write_bytes(original)
    assert found(data) == []


def test_wrong_leader_epochs(data: Path) -> None:
    table = data / PARTITION / checkpoint_file.LEADER_EPOCHS
    [[epoch, start]] = checkpoint_file.decode(table.read_bytes(), 2)
    table.write_bytes(checkpoint_file.encode([f"{epoch} {start}", f"{int(epoch) + 1} 500"]))
    [(kind, _, offset)] = found(data)
    assert kind == Kind.EPOCHS
    assert offset is not None
    assert offset >= 500


def test_a_lost_segment(data: Path) -> None:
    lost, following = segments(data)[1:3]
    for path in lost.parent.glob(f"{lost.stem}.*"):
        path.unlink()
    assert found(data) == [(Kind.MISSING_SEGMENT, following.name, int(lost.stem))]


def test_a_lost_end(data: Path) -> None:
    lost = segments(data)[-1]
    for path in lost.parent.glob(f"{lost.stem}.*"):
        path.unlink()
    assert found(data) == [(Kind.SHORT, "", int(lost.stem))]


def test_what_retention_removed_is_not_missed(data: Path) -> None:
    """Also in the middle of a transaction."""
    for first in segments(data)[:-1]:
        for path in first.parent.glob(f"{first.stem}.*"):
            path.unlink()
        assert found(data) == []


def test_a_lost_partition(data: Path) -> None:
    shutil.rmtree(data / PARTITION)
    assert found(data) == [(Kind.MISSING_PARTITION, PARTITION, None)]


def test_a_torn_tail(data: Path) -> None:
    path = segments(data)[-1]
    for cut in (20, 60, 70):
        content = path.read_bytes()
        position, header = headers(path)[-1]
        os.truncate(path, position + min(cut, header.length - 1))
        assert found(data) == [(Kind.TORN, path.name, header.base_offset)]
        path.write_bytes(content)


def test_what_a_crash_may_leave_is_no_damage(data: Path) -> None:
    """No mark of a clean stop, an old recovery point, the active index not written, space allocated in advance."""
    (data / CLEAN_SHUTDOWN_FILE).unlink()
    (data / checkpoint_file.RECOVERY_POINT).write_bytes(checkpoint_file.encode(["audited 0 10"]))
    for suffix in (".index", ".timeindex"):
        segments(data, suffix)[-1].unlink()
    with open(segments(data)[-1], "ab") as file:
        file.write(bytes(10_000))
    assert found(data) == []


def test_replicas_that_differ(data: Path, tmp_path: Path) -> None:
    """Below both high watermarks they must agree; beyond, and where one begins later, they need not."""
    other = Path(shutil.copytree(data, tmp_path / "other"))
    (other / "meta.properties").write_text("version=1\nnode.id=2\n")
    assert found(data, other) == []
    first = segments(other)[0]
    for path in first.parent.glob(f"{first.stem}.*"):
        path.unlink()
    last = segments(other)[-1]
    position, header = headers(last)[-1]
    content = bytearray(last.read_bytes())
    content[position + header.length - 3] ^= 1
    crc = batches.compute_crc(content, position, position + header.length)
    content[position + batches.CRC_POS : position + batches.CRC_POS + 4] = crc.to_bytes(4, "big")
    last.write_bytes(content)
    assert found(data, other) == [(Kind.DIVERGED, "", header.base_offset)]
    marks = other / checkpoint_file.HIGH_WATERMARK
    lines = [words for words in checkpoint_file.decode(marks.read_bytes(), 3) if words[0] != "audited"]
    lines.append(["audited", "0", str(header.base_offset)])
    marks.write_bytes(checkpoint_file.encode(map(" ".join, lines)))
    assert found(data, other) == []


def test_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(data), "--json", str(tmp_path / "report")]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    change(segments(data)[0], 300)
    assert main([str(data), "--json", "-"]) == 1
    assert '"clean": false' in capsys.readouterr().out
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no such directory" in capsys.readouterr().err


def test_a_running_broker(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    """Files that grow, roll and go while they are read."""
    broker = new_broker({"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "10"})
    Admin(broker.bootstrap).create(topic_name, segment_bytes=1 << 20, retention_bytes=3 << 20)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 4_000})
    for _ in range(10):
        for _ in range(500):
            producer.produce(topic_name, bytes(3_000))
            producer.poll(0)
        assert found(broker.data) == []
    assert producer.flush(60) == 0
