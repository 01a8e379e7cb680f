"""`python -m bench`: runs the row groups asked for and prints the table."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench import machine
from bench.harness import Bench
from bench.table import Row, markdown

# In the order of a full run: what starts brokers of its own comes last, and the loaded memory is read after the loads.
# With the seconds each may take, the first one for warming up as well: on a slow or busy machine a group makes fewer
# rounds instead of taking longer.
GROUPS = {
    "bulk": 230, "requests": 100, "latency": 160, "fanout": 80, "sendfile": 50, "flush": 60, "memory": 30,
    "startup": 40, "partitions": 130, "groups": 70, "transactions": 70, "spark": 120, "cluster": 200, "image": 30,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help=f"row groups, of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="one short round of everything, to see that it works")
    parser.add_argument("--brokers", default="kafka,pylogd", help="which brokers to run")
    parser.add_argument("--directory", help="where to make the directory for the brokers' data")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    groups = options.only.split(",")
    for unknown in set(groups) - set(GROUPS):
        parser.error(f"no row group {unknown!r}; there are {', '.join(GROUPS)}")

    started = time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix="pylogd-bench-", dir=options.directory))
    bench = Bench(directory, options.brokers.split(","), quick=options.quick)
    rows: list[Row] = []
    took: dict[str, float] = {}
    failed: list[str] = []
    print(f"# {machine.describe()}", file=sys.stderr)
    try:
        with bench.stack:
            for group in (each for each in GROUPS if each in groups):
                began = time.perf_counter()
                print(f"== {group} ({began - started:.0f} s)", file=sys.stderr, flush=True)
                bench.deadline = began + GROUPS[group]
                try:
                    rows += importlib.import_module(f"bench.rows.{group}").measure(bench)
                except Exception:
                    # The other groups do not depend on it, and a full run is long.
                    traceback.print_exc()
                    failed.append(group)
                took[group] = time.perf_counter() - began
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if rows:
            print(markdown(rows))
    print(f"\n{machine.describe()}; {time.perf_counter() - started:.0f} s in all:", end=" ")
    print(", ".join(f"{group} {seconds:.0f} s" for group, seconds in took.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    if failed:
        print(f"failed, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
