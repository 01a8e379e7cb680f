"""kafka-python's own integration tests: fetched as the source distribution of the version that is installed, and run
in a pytest of their own against a broker that runs already."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

from support.paths import cache_lock

VERSION = importlib.metadata.version("kafka-python")
BROKER_VERSION = "4.3"
# The distribution leaves out `test/__init__.py` and `test/service.py`. Of the latter, tests against a broker that runs
# already need a name to import for brokers started by the fixtures, and a service that is not theirs to stop.
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.address = (host, port)


class SpawnedService:
    pass
"""
# kafka-python 3.0.12 loses an update of its metadata: the answer to a request that was made before `set_topics` marks
# it as fresh, and a consumer without a group then has no partitions for metadata_max_age_ms (5 minutes). A consumer's
# constructor does both, in two threads. Apache Kafka sees it as often (6 of 1,200 consumers beside 5 of 1,200 here).
PACKAGE = """
from kafka.cluster import ClusterMetadata

refresh = ClusterMetadata._do_refresh_metadata


async def refresh_until_current(self, node_id):
    asked = set(self._topics)
    await refresh(self, node_id)
    if self._topics != asked:
        self.request_update()


ClusterMetadata._do_refresh_metadata = refresh_until_current
"""


def distribution() -> Path:
    with cache_lock(f"kafka-python-{VERSION}") as folder:
        if not list(folder.glob("*.tar.gz")):
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download"]
            command = [*pip, "--no-deps", "--no-binary", ":all:", "-d", str(folder), f"kafka-python=={VERSION}"]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=300)
        return next(folder.glob("*.tar.gz"))


def unpack(folder: Path) -> Path:
    """The tests without the library beside them: it is the installed one that is tested."""
    with tarfile.open(distribution()) as archive:
        top = archive.getnames()[0].split("/")[0]
        wanted = [member for member in archive.getmembers() if member.name.startswith((f"{top}/test/", f"{top}/py"))]
        archive.extractall(folder, wanted, filter="data")
    root = folder / top
    (root / "test" / "__init__.py").write_text(PACKAGE)
    (root / "test" / "service.py").write_text(SERVICE)
    return root


def run(root: Path, bootstrap: str, left_out: list[str]) -> tuple[dict[str, str], str]:
    """What became of each integration test ("passed", "failed", "error" or "skipped: why"), and what pytest printed."""
    report = root / "report.xml"
    command = [sys.executable, "-m", "pytest", "test/integration", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    command += ["-o", "log_level=WARNING", "--timeout=120", "--timeout-method=signal", "-q"]
    command += [option for name in left_out for option in ("--deselect", f"test/integration/{name}")]
    # The fixtures look for a Kafka installation, which a broker that runs already makes superfluous.
    settings = {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": BROKER_VERSION, "KAFKA_ROOT": str(root)}
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **settings}, capture_output=True, text=True, timeout=280
    )
    assert report.exists(), done.stdout + done.stderr
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").removeprefix("test.integration.").replace(".", ".py::", 1)
        name = f"{file if '::' in file else file + '.py'}::{case.get('name')}"
        outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if outcome is None:
            outcomes[name] = "passed"
        elif outcome.tag == "skipped":
            outcomes[name] = f"skipped: {outcome.get('message')}"
        else:
            outcomes[name] = "failed" if outcome.tag == "failure" else "error"
    return outcomes, done.stdout + done.stderr
