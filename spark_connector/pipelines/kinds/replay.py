"""A range of a topic once more, into another topic.

The range is resolved to offsets when the replay first starts and kept with its checkpoint: a replay that is resumed
ends where it was meant to end, whatever has been written since.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.folder import Folder
from pylogd.spark_connector.pipelines.job_settings import Replay
from pylogd.spark_connector.pipelines.pipeline_context import Context, Plan
from pylogd.spark_connector.pipelines.topic_admin import Offsets
from pyspark.sql import functions as F

_FILE = "pylogd/range.json"


def plan(context: Context, settings: Replay) -> Plan:
    """The records of the range, as they were, with headers that say where they stood."""
    start, end = _range(context, settings)
    rows = context.stream(settings, start)
    limit = F.create_map(*[F.lit(number) for pair in end.items() for number in pair])
    # A partition that was added since has no end in the range, and nothing of it belongs there.
    rows = rows.where(F.col("offset") < F.coalesce(limit[F.col("partition")], F.lit(0)))
    if settings.where:
        with context.blame("where"):
            rows = rows.where(settings.where)
    columns = ["key", "value", "headers", *(["partition"] if settings.keep_partitions else [])]
    outgoing = frames.with_headers(rows, *frames.origin()).select(*columns)

    def over(progress: dict[str, Any]) -> bool:
        reached = json.loads(progress["sources"][0]["endOffset"])[settings.input]
        return all(int(reached.get(str(partition), 0)) >= offset for partition, offset in end.items())

    return dataclasses.replace(context.to_topic(settings.output, outgoing), over=over)


def _range(context: Context, settings: Replay) -> tuple[Offsets, Offsets]:
    folder = Folder(context.spark, context.checkpoint)
    text = folder.read(_FILE)
    if text is None:
        start = context.topics.resolve(settings.input, settings.start)
        end = context.topics.resolve(settings.input, settings.end, "latest")
        text = json.dumps({"start": start, "end": end})
        folder.write(_FILE, text)
    kept = json.loads(text)
    start, end = ({int(key): offset for key, offset in kept[name].items()} for name in ("start", "end"))
    return start, end
