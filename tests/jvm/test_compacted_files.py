"""Kafka's DumpLogSegments reads what compaction leaves: every codec, delete horizons, emptied batches, indexes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.compaction import RETENTION_MS, Bench
from support.jvm import ToolHost
from support.tools import assert_files_clean, dump

pytestmark = pytest.mark.jvm


def test_compacted_segments_are_clean_and_hold_what_we_read(tools: ToolHost, tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), **{"segment.bytes": 20_000, "index.interval.bytes": 400})
    for n in range(300):
        rows = [(b"k%d" % (n % 37), None if n % 23 == 0 else b"v%d" % n * 5), (b"z%d" % (n % 5), b"w" * 50)]
        bench.append(rows, codec=n % 5, producer=n % 3 if n % 4 else -1)
        if n % 50 == 10:
            bench.append([(b"t%d" % n, b"in a transaction")], codec=n % 5, producer=7, txn=True)
        if n % 50 == 20:
            bench.end(7, commit=n % 100 == 20)
    for _ in range(2):
        bench.log.roll()
        bench.compact()
        bench.check()
        bench.clock.advance(RETENTION_MS * 2)
        bench.append([(b"end", b"x")])
    bench.log.flush()
    bench.log.close()
    bench.environment.run_pending()
    directory = Path(bench.directory)
    assert assert_files_clean(tools, directory, gaps=True)
    listing = "".join(dump(tools, path, "--print-data-log", gaps=True) for path in sorted(directory.glob("*.log")))
    assert "isvalid: false" not in listing
    assert "deleteHorizonMs: OptionalLong[" in listing
    bench.log = bench.open(clean=True)
    theirs = [int(offset) for offset in re.findall(r"^\| offset: (\d+) .*key: ", listing, re.MULTILINE)]
    assert theirs == sorted(bench.records())
    bench.log.close()
