"""docs/spark.md does what it says. The page is taken literally, and this is all that is done to it:

- a block of TOML or Python that begins with `# NAME` is saved as that file;
- a block of `sh` is run by bash, in the order of the page;
- a Python file that no `sh` block runs is run here, in the Spark session of the tests, for a start of Spark costs much;
- `127.0.0.1:9092` becomes the address of the broker of the tests. `console` blocks are to look at.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import signal
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.spark_connector.cache import OVERRIDE
from support.paths import CACHE, CHECKOUT
from support.spark import Kafka, expected, summary

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SCRIPT_S = 900

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\S+\.(?:toml|py))\n")


def blocks(bootstrap: str) -> Iterator[tuple[str, str, str]]:
    """Language, file name if it has one, and text."""
    page = (CHECKOUT / "docs" / "spark.md").read_text().replace("127.0.0.1:9092", bootstrap)
    for language, text in BLOCK.findall(page):
        name = NAME.match(text)
        yield language, name[1] if name else "", text


def bash(script: str, folder: Path) -> str:
    """All that scripts have said so far."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, OVERRIDE: str(CACHE)}
    with open(folder / "said", "a+") as said:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(SCRIPT_S)
        finally:
            # What it left in the background, if it failed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            said.seek(0)
            text = said.read()
    assert code == 0, text
    return text


def test_page(
    spark: Any,
    one: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(blocks(one.bootstrap))
    scripts = "".join(text for language, _, text in found if language == "sh")
    said: dict[str, str] = {}
    for language, name, text in found:
        if name:
            (tmp_path / name).write_text(text)
        if language == "sh":
            said["sh"] = bash(text, tmp_path)
        elif language == "python" and name not in scripts:
            runpy.run_path(name)
            said[name] = capsys.readouterr().out
    assert [name for _, name, _ in found if name] == [
        "clicks.toml", "watch.py", "windows.py", "shop.toml", "customers.py", "shop.py", "lag.py"
    ]  # fmt: skip

    watched = [line for line in said["sh"].splitlines() if line.startswith('{"start":')]
    assert len(watched) == 9
    assert "totals (transform): " in said["sh"]
    # What windows.py counted in the topic is what the job, which never saw the end of it, said of complete windows.
    rows = spark.table("totals").selectExpr("unix_seconds(window.start) AS start", "page", "clicks").collect()
    counted = {(time.strftime("%H:%M:%S", time.gmtime(row.start)), row.page): row.clicks for row in rows}
    assert sum(counted.values()) == one.read(spark, "clicks").count()
    totals = [json.loads(row.value) for row in one.read(spark, "clicks.totals").collect()]
    assert len(totals) >= 9
    assert len({(total["start"], total["page"]) for total in totals}) == len(totals)
    for total in totals:
        assert counted[total["start"], total["page"]] == total["clicks"]
    assert "page-2" in said["windows.py"]

    lines = said["shop.py"].splitlines()
    ended = [line.partition(" in ")[0] for line in lines if line.endswith("done")]
    assert ended == [
        "orders (ingest): 3 read, 3 written",
        "large (transform): 3 read, 1 written",
        "lake (sink): 3 read, 2 written, 1 refused",
        "customers (materialise): 4 read, 1 written",
        "again (replay): 3 read, 3 written",
    ]
    assert any("ann" in line and "Rome" in line for line in lines)
    assert summary(one.read(spark, "shop.large")) == expected([(b"1", b'{"id":1,"name":"Ann Smith","amount":120.5}')])
