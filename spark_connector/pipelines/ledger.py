"""What a pipeline notes beside Spark's own checkpoint, so that a step that was cut short is finished and not repeated.

Spark repeats a micro-batch that was cut short with the very same input. Before a batch writes anything, the ledger
records its number and where each output topic ends. If that number comes again, the batch is a repetition: what it
wrote the first time stands after those ends and bears its mark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pylogd.spark_connector.pipelines.folder import Folder
from pylogd.spark_connector.pipelines.topic_admin import Offsets, Topics

_FILE = "pylogd/batch.json"


@dataclass(frozen=True)
class Batch:
    """A micro-batch, as it was when it first began."""

    number: int
    #: Belongs to this batch of this checkpoint alone.
    mark: str
    #: Where each output topic ended before the batch wrote to it.
    ends: dict[str, Offsets]
    #: The latest event time of all batches before this one.
    event_time_ms: int | None
    repeated: bool


class Ledger:
    """The notes of one pipeline: the last batch that began, and the latest event time it has seen."""

    def __init__(self, spark: Any, checkpoint: str, topics: Topics, outputs: list[str]) -> None:
        self._folder = Folder(spark, checkpoint)
        self._topics = topics
        self._outputs = outputs

    def begin(self, number: int) -> Batch:
        """Notes that a batch begins; `repeated` if it did before."""
        text = self._folder.read(_FILE)
        last = json.loads(text) if text else {}
        if last.get("number") == number:
            ends = {topic: {int(key): end for key, end in found.items()} for topic, found in last["ends"].items()}
            return Batch(number, last["mark"], ends, last["event_time_ms"], repeated=True)
        batch = Batch(
            number,
            f"{self._query_id()}/{number}",
            {topic: self._topics.ends(topic) for topic in self._outputs},
            last.get("event_time_after_ms"),
            repeated=False,
        )
        self._write(batch, batch.event_time_ms)
        return batch

    def finish(self, batch: Batch, event_time_ms: int | None) -> None:
        """The batch is complete; later ones count lateness from the latest event time so far."""
        known = [time for time in (batch.event_time_ms, event_time_ms) if time is not None]
        if known:
            self._write(batch, max(known))

    def _query_id(self) -> str:
        metadata = self._folder.read("metadata")
        assert metadata is not None, "Spark writes the id of a query before its first batch"
        return str(json.loads(metadata)["id"])

    def _write(self, batch: Batch, event_time_after_ms: int | None) -> None:
        entry = {
            "number": batch.number,
            "mark": batch.mark,
            "ends": batch.ends,
            "event_time_ms": batch.event_time_ms,
            "event_time_after_ms": event_time_after_ms,
        }
        self._folder.write(_FILE, json.dumps(entry))
