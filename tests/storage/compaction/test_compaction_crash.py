"""A crash at every step of a compaction and its swaps: the log comes back with every key's latest record."""

from __future__ import annotations

import pytest
from pylogd.runtime.simulated.simulated_files import Crash, SimulatedFileSystem
from support.compaction import RETENTION_MS, Bench


def prepare(seed: int) -> tuple[Bench, SimulatedFileSystem]:
    """Segments with overwritten keys, tombstones, a live producer, an aborted and a committed transaction, on disk."""
    files = SimulatedFileSystem(seed)
    bench = Bench("/data", files)
    for n in range(12):
        bench.append(
            [(b"%d" % (n % 5), b"%d" % n * 20), (b"x", None if n == 9 else b"%d" % n)], codec=n % 5, producer=1
        )
    bench.append([(b"0", b"lost")], producer=3, txn=True)
    bench.append([(b"1", b"kept")], producer=4, txn=True)
    bench.end(3, commit=False)
    bench.end(4, commit=True)
    for n in range(4):
        bench.append([(b"y", bytes([n]) * 60)])
    bench.log.roll()
    bench.log.flush()
    files.sync_everything()
    return bench, files


def work(bench: Bench) -> None:
    """Two rounds, the second past the tombstones' retention."""
    bench.compact()
    bench.clock.advance(RETENTION_MS + 1)
    bench.append([(b"z", b"last")])
    bench.log.roll()
    bench.log.flush()
    bench.compact()
    bench.environment.run_pending()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trusting", [False, True], ids=["scanned", "trusted"])
def test_a_crash_at_every_step(seed: int, trusting: bool) -> None:
    bench, files = prepare(seed)
    before = files.steps
    work(bench)
    bench.check()
    total = files.steps - before
    assert total > 40
    for step in range(1, total + 1):
        bench, files = prepare(seed * 1000 + step)
        files.crash_at = files.steps + step
        with pytest.raises(Crash):
            work(bench)
        flushed = bench.log.recovery_point
        bench.environment.files = files.after_crash()
        # What the checkpoint would have said decides whether compacted segments are scanned or believed.
        bench.log = bench.open(clean=False, recovery_point=flushed if trusting else 0)
        assert bench.log.log_end_offset >= flushed, files.history[-3:]
        survivors = bench.records()
        for offset in [o for o in bench.written if o >= flushed and o not in survivors]:
            del bench.written[offset]
        bench.last_clean = None
        bench.check()
        leftovers = bench.environment.files.listdir(bench.directory)
        assert not [name for name in leftovers if name.endswith((".cleaned", ".swap", ".deleted"))]
        # And compaction goes on from there.
        bench.compact()
        bench.check()
