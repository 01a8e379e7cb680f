"""Feature levels: which versions of metadata.version and of the other features exist, and what each one allows.

The finalized level of a feature is a FeatureLevelRecord in the metadata log. This table says what this node supports,
and which record versions a given metadata.version may write, so that an older Kafka can still read our log.
"""

from __future__ import annotations

from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELR_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

# level -> (name, True when records changed shape or kind against the level below: a downgrade could lose them)
METADATA_LEVELS: dict[int, tuple[str, bool]] = {
    7: ("3.3-IV3", True),
    8: ("3.4-IV0", True),
    9: ("3.5-IV0", False),
    10: ("3.5-IV1", False),
    11: ("3.5-IV2", True),
    12: ("3.6-IV0", False),
    13: ("3.6-IV1", True),
    14: ("3.6-IV2", True),
    15: ("3.7-IV0", True),
    16: ("3.7-IV1", False),
    17: ("3.7-IV2", True),
    18: ("3.7-IV3", False),
    19: ("3.7-IV4", False),
    20: ("3.8-IV0", False),
    21: ("3.9-IV0", False),
    22: ("4.0-IV0", False),
    23: ("4.0-IV1", True),
    24: ("4.0-IV2", False),
    25: ("4.0-IV3", False),
    26: ("4.1-IV0", False),
    27: ("4.1-IV1", False),
    28: ("4.2-IV0", False),
    29: ("4.2-IV1", False),
    30: ("4.3-IV0", True),
    31: ("4.4-IV0", False),
}
METADATA_MIN = 7
METADATA_LATEST = 30
METADATA_LATEST_UNSTABLE = 31


class FeatureRange(NamedTuple):
    """Inclusive range of supported levels of one feature."""

    min: int
    max: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min <= level <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}"


DISABLED = FeatureRange(0, 0)

#: In the order Kafka lists them.
SUPPORTED_FEATURES: dict[str, FeatureRange] = {
    GROUP_VERSION: FeatureRange(0, 1),
    KRAFT_VERSION: FeatureRange(0, 1),
    METADATA_VERSION: FeatureRange(METADATA_MIN, METADATA_LATEST),
    SHARE_VERSION: FeatureRange(0, 1),
    STREAMS_VERSION: FeatureRange(0, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
    ELR_VERSION: FeatureRange(0, 1),
}

# (feature, level) -> features that must be at least at a level before it can be set
DEPENDENCIES: dict[tuple[str, int], dict[str, int]] = {(ELR_VERSION, 1): {METADATA_VERSION: 23}}

# (feature, level) -> lowest metadata.version whose new clusters start with it
BOOTSTRAP_LEVELS: dict[str, tuple[tuple[int, int], ...]] = {
    ELR_VERSION: ((1, 26),),
    GROUP_VERSION: ((1, 22),),
    SHARE_VERSION: ((1, 28),),
    STREAMS_VERSION: ((1, 29),),
    TRANSACTION_VERSION: ((1, 24), (2, 24)),
}


def default_levels(metadata_version: int) -> dict[str, int]:
    """Feature levels a cluster formatted at ``metadata_version`` starts with, in the order Kafka writes them."""
    levels = {METADATA_VERSION: metadata_version}
    for name, steps in sorted(BOOTSTRAP_LEVELS.items()):
        level = max((level for level, since in steps if metadata_version >= since), default=0)
        if level:
            levels[name] = level
    return levels


def metadata_changed(current: int, target: int) -> bool:
    """Whether going from ``current`` down to ``target`` crosses a level that changed records."""
    low, high = sorted((current, target))
    return any(changed for level, (_, changed) in METADATA_LEVELS.items() if low < level <= high)


def transactions_supported(metadata_version: int) -> bool:
    return metadata_version >= 13


def controller_registration_supported(metadata_version: int) -> bool:
    return metadata_version >= 15


def directory_assignment_supported(metadata_version: int) -> bool:
    return metadata_version >= 17


def cordoned_dirs_supported(metadata_version: int) -> bool:
    return metadata_version >= 30


def epoch_bump_on_isr_shrink(metadata_version: int) -> bool:
    """Before 3.6-IV0 brokers relied on a new leader epoch whenever the ISR shrank."""
    return metadata_version < 12


def register_broker_record_version(metadata_version: int) -> int:
    if metadata_version >= 30:
        return 4
    if metadata_version >= 17:
        return 3
    return 2 if metadata_version >= 8 else 1


def partition_record_version(metadata_version: int) -> int:
    """Version of PartitionRecord and of PartitionChangeRecord, which change together."""
    if metadata_version >= 23:
        return 2
    return 1 if metadata_version >= 17 else 0
