"""Pipelines as declared jobs: what `pylogd spark run` runs, for use from Python.

A topic into Parquet files:

    lake = Sink(name="lake", input="orders", output="lake", schema="id BIGINT")
    run(Job(checkpoints="checkpoints", pipelines=[lake]), session())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pylogd.spark_connector.pipelines.job_file import LoadError, load
from pylogd.spark_connector.pipelines.job_settings import (
    Files,
    Ingest,
    Job,
    Materialise,
    Replay,
    SettingError,
    Sink,
    Topic,
    Transform,
    Watermark,
)

if TYPE_CHECKING:
    from pylogd.spark_connector.pipelines.kinds.materialise import read_table
    from pylogd.spark_connector.pipelines.kinds.sink import read_parquet
    from pylogd.spark_connector.pipelines.runner import PipelineError, Summary, run

__all__ = [
    "Files",
    "Ingest",
    "Job",
    "LoadError",
    "Materialise",
    "PipelineError",
    "Replay",
    "SettingError",
    "Sink",
    "Summary",
    "Topic",
    "Transform",
    "Watermark",
    "load",
    "read_parquet",
    "read_table",
    "run",
]

# What needs PySpark is imported when it is asked for: a file can be checked where there is none.
_WITH_SPARK = {
    "PipelineError": "runner",
    "Summary": "runner",
    "run": "runner",
    "read_parquet": "kinds.sink",
    "read_table": "kinds.materialise",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_SPARK[name]}"), name)
