"""The first records of a metadata log, and what a new active controller writes before it serves anybody.

`bootstrap.checkpoint` in the metadata directory holds the feature levels a cluster was formatted with (and whatever
else the format command was told to set up). They enter the log once, when the first controller finds it empty, inside a
metadata transaction, so that a crash in the middle leaves nothing.
"""

from __future__ import annotations

from pylogd.controller.decide.configs import MIN_ISR
from pylogd.metadata import feature_levels
from pylogd.metadata.image import BROKER_RESOURCE, ClusterImage
from pylogd.metadata.record_batches import VersionedRecord, decode_batches
from pylogd.protocol.messages import metadata_records as m
from pylogd.runtime.files import FileSystem

FILE_NAME = "bootstrap.checkpoint"


def default_records(metadata_version: int = feature_levels.METADATA_LATEST) -> list[VersionedRecord]:
    """What formatting writes when it is told nothing special."""
    return [
        (m.FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in feature_levels.default_levels(metadata_version).items()
    ]


def read_bootstrap(files: FileSystem, root: str) -> list[VersionedRecord]:
    """Records of `bootstrap.checkpoint`, or the defaults when the directory has none (as Kafka assumes too)."""
    path = f"{root}/{FILE_NAME}"
    if not files.exists(path):
        return default_records()
    records: list[VersionedRecord] = []
    for batch in decode_batches(files.read_bytes(path)):
        if not batch.control:
            records += [(record, 0) for record in batch.records]
    return records


def _level(records: list[VersionedRecord], feature: str) -> int:
    for record, _ in records:
        if isinstance(record, m.FeatureLevelRecord) and record.name == feature:
            return record.feature_level
    return 0


def activation_records(
    image: ClusterImage, bootstrap: list[VersionedRecord], static_min_insync_replicas: int
) -> list[VersionedRecord]:
    """Records of a controller that has just become active; often none."""
    records: list[VersionedRecord] = []
    interrupted = image.pending is not None
    if interrupted:
        records.append((m.AbortTransactionRecord(reason="Controller failover"), 0))
    if image.metadata_version:
        return records
    level = _level(bootstrap, feature_levels.METADATA_VERSION)
    if level < feature_levels.METADATA_MIN:
        raise ValueError(f"{FILE_NAME} sets metadata.version {level}; at least {feature_levels.METADATA_MIN} is needed")
    body: list[VersionedRecord] = list(bootstrap)
    if _level(bootstrap, feature_levels.ELR_VERSION) > 0:
        # Eligible leader replicas need one min.insync.replicas that holds for the whole cluster.
        config = m.ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=str(static_min_insync_replicas)
        )
        body.append((config, 0))
    if feature_levels.transactions_supported(level):
        records.append((m.BeginTransactionRecord(name="Bootstrap records"), 0))
        records += body
        records.append((m.EndTransactionRecord(), 0))
    else:
        records += body
    return records
