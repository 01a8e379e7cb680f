"""Kafka's command-line tools by name, as the scripts in Kafka's bin/ call them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.jvm import ToolHost, ToolResult, tool_command

CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
}


class ToolFailed(AssertionError):
    def __init__(self, args: tuple[str, ...], result: ToolResult) -> None:
        super().__init__(f"{' '.join(args)}: {result}")
        self.result = result


@dataclass(frozen=True)
class Tools:
    host: ToolHost
    bootstrap: str

    def try_(self, tool: str, *args: str, stdin: str = "", timeout_s: float = 60) -> ToolResult:
        where = () if tool == "dump-log" else ("--bootstrap-server", self.bootstrap)
        # kafka-cluster takes the server as an option of its sub-command, the others as their own.
        line = (*args, *where) if tool == "cluster" else (*where, *args)
        return self.host.run(CLASSES[tool], *line, stdin=stdin, timeout_s=timeout_s)

    def run(self, tool: str, *args: str, stdin: str = "", timeout_s: float = 60) -> str:
        """What the tool printed; it must end by itself with code 0."""
        result = self.try_(tool, *args, stdin=stdin, timeout_s=timeout_s)
        if result.code != 0 or result.timed_out:
            raise ToolFailed((tool, *args), result)
        return result.stdout

    def consume(self, topic: str, count: int, *options: str, partition: int = 0, offset: str = "earliest") -> list[str]:
        args = ["--topic", topic, "--partition", str(partition), "--offset", offset, "--max-messages", str(count)]
        return self.run("console-consumer", *args, "--timeout-ms", "30000", *options).splitlines()

    def verifiable_producer(self, topic: str, count: int, *options: str) -> list[dict[str, object]]:
        """VerifiableProducer ends through the JVM's own hooks, so it gets a JVM of its own; its JSON lines."""
        args = ["--bootstrap-server", self.bootstrap, "--topic", topic, "--max-messages", str(count), *options]
        command = tool_command("org.apache.kafka.tools.VerifiableProducer", *args)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


# -- DumpLogSegments over a whole data directory

CHECKED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}


def group_rows(text: str, *columns: str) -> list[tuple[str, ...]]:
    """Columns of a table that `consumer-groups` printed, sorted."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(n for n, words in enumerate(lines) if words[0] == "GROUP")
    places = [lines[start].index(name) for name in columns]
    return sorted(tuple(words[place] for place in places) for words in lines[start + 1 :])


def log_files(data: Path) -> Iterator[Path]:
    """Every file of a data directory that DumpLogSegments can read: named by an offset, a metadata snapshot also by
    its epoch (00000000000000000012-0000000001.checkpoint)."""
    for path in sorted(data.rglob("*")):
        by_offset = path.stem.replace("-", "", 1).isdigit()
        if path.suffix in CHECKED and (by_offset or path.name == "bootstrap.checkpoint"):
            yield path


def dump(tools: ToolHost, path: Path, *options: str, gaps: bool = False) -> str:
    """What DumpLogSegments prints of a file. What it finds wrong it says on stderr, which must be empty but for the
    first offset of a segment, which it always calls a gap after -1, and the gaps of a compacted log (`gaps`)."""
    result = tools.run(CLASSES["dump-log"], "--files", str(path), *options, timeout_s=120)
    assert (result.code, result.timed_out) == (0, False), f"{path}: {result}"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    if lines and lines[0].startswith("Non-consecutive offsets"):
        lines = [] if gaps else [line for line in lines[1:] if not line.startswith("  -1 is followed by")]
    assert not lines, f"{path}: {result.stderr}"
    return result.stdout


def _decoder(path: Path) -> tuple[str, ...]:
    """What makes DumpLogSegments read the records of an internal topic."""
    topic = path.parent.name.rpartition("-")[0]
    if path.suffix == ".checkpoint" or topic == "__cluster_metadata":
        return ("--cluster-metadata-decoder",)
    names = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}
    return (names[topic],) if topic in names else ()


def assert_files_clean(tools: ToolHost, data: Path, *, gaps: bool = False) -> int:
    """Holds DumpLogSegments against every file below a data directory; how many files it read."""
    count = 0
    for path in log_files(data):
        count += 1
        runs: list[tuple[str, ...]] = [()]
        if path.suffix in (".log", ".checkpoint"):
            runs = [("--deep-iteration", *_decoder(path))]
        elif path.suffix in (".index", ".timeindex"):
            runs = [("--index-sanity-check",), ("--verify-index-only",)]
        for options in runs:
            text = dump(tools, path, *options, gaps=gaps)
            for complaint in ("isvalid: false", "invalid bytes", "Error at", "skipping"):
                assert complaint not in text, f"{path}:\n{text[:8000]}"
    return count
