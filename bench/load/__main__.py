"""Runs one load function in this process: `python -m bench.load KIND FUNCTION JSON CORES`.

A load function is a generator: it sets up, yields once when ready to start, and returns its result.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    kind, function, arguments, cores = sys.argv[1:5]
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    work = getattr(importlib.import_module(f"bench.load.{kind}"), function)(**json.loads(arguments))
    next(work)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # the bench gave up
    try:
        next(work)
    except StopIteration as done:
        print(json.dumps(done.value), flush=True)
        # librdkafka's destructors wait for outstanding long polls: the result is out, so leave at once.
        os._exit(0)
    raise RuntimeError("a load function yields once")


main()
