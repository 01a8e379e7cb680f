"""What the Spark tests share: the cluster a test reads from, frames over its topics, and checks of whole contents."""

from __future__ import annotations

import itertools
import json
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.admin import Admin
from support.clients import Confluent, Message

confluent = Confluent()
QUERY_S = 280


def command(*arguments: str) -> list[str]:
    """The command line of `pylogd spark ...`."""
    return [str(Path(sysconfig.get_path("scripts")) / "pylogd"), "spark", *arguments]


@dataclass(frozen=True)
class Kafka:
    """One broker, or three with every topic on all of them."""

    bootstrap: str
    replicas: int

    @property
    def admin(self) -> Admin:
        return Admin(self.bootstrap)

    def create(self, topic: str, partitions: int = 1, **config: object) -> str:
        return self.admin.create(topic, partitions, self.replicas, **config)

    def produce(self, topic: str, messages: Iterable[Message], codec: str = "none") -> None:
        rest = iter(messages)
        # The client's queue holds 100,000.
        while some := list(itertools.islice(rest, 50_000)):
            confluent.produce(self.bootstrap, topic, some, codec=codec, idempotence=True)

    def options(self, topic: str | None, more: dict[str, object]) -> dict[str, str]:
        where = {"kafka.bootstrap.servers": self.bootstrap, **({} if topic is None else {"subscribe": topic})}
        return {**where, **{name: str(value) for name, value in more.items()}}

    def read(self, spark: Any, topic: str | None, **options: object) -> Any:
        """A batch over a topic; without one the options say what to read."""
        return spark.read.format("kafka").options(**self.options(topic, options)).load()

    def stream(self, spark: Any, topic: str | None, **options: object) -> Any:
        return spark.readStream.format("kafka").options(**self.options(topic, options)).load()

    def write(self, frame: Any, topic: str, **options: object) -> None:
        where = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}
        frame.write.format("kafka").options(**where, **options).save()

    def sink(self, frame: Any, topic: str, checkpoint: object) -> Any:
        """The writer of a streaming query into a topic."""
        where = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "checkpointLocation": str(checkpoint)}
        return frame.writeStream.format("kafka").options(**where)


# -- results, by count and by checksum

Summary = tuple[int, int]


def summary(frame: Any) -> Summary:
    """How many records, and the sum of the CRCs of keys and values: computed where the records are."""
    crc = "crc32(concat(coalesce(key, cast('-' as binary)), coalesce(value, cast('-' as binary))))"
    [row] = frame.selectExpr("count(*) as n", f"coalesce(sum({crc}), 0) as crc").collect()
    return row.n, row.crc


def expected(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Summary:
    crcs = [zlib.crc32((b"-" if key is None else key) + (b"-" if value is None else value)) for key, value in pairs]
    return len(crcs), sum(crcs)


def places(frame: Any) -> list[tuple[int, int]]:
    """Partition and offset of every record, sorted: exact, and small enough to read in a failure."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


# -- queries


def finish(query: Any) -> Any:
    """Waits for the end of a query that ends by itself."""
    try:
        assert query.awaitTermination(QUERY_S), f"still running: {query.status}"
    finally:
        query.stop()
    return query


def offsets(text: str | None) -> dict[tuple[str, int], int]:
    """An offset of the Kafka source, as progress reports and checkpoints write it."""
    found = json.loads(text) if text else {}
    return {(topic, int(number)): at for topic, parts in found.items() for number, at in parts.items()}


def assert_never_backwards(reports: Iterable[Any]) -> None:
    """Neither what Spark has read nor what it was told is the latest may ever shrink."""
    for kind in ("endOffset", "latestOffset"):
        seen: dict[tuple[str, int], int] = {}
        for report in reports:
            for where, at in offsets(report.sources[0][kind]).items():
                assert at >= seen.get(where, 0), f"{kind} of {where} went from {seen[where]} back to {at}"
                seen[where] = at


def nonempty(reports: Iterable[Any]) -> Iterator[int]:
    return (report.numInputRows for report in reports if report.numInputRows)
