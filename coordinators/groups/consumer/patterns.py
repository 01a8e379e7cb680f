"""When patterns are matched with topics: as an event of its own, so that a heartbeat does not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from pylogd.coordinators.groups.consumer.regex import matching
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.shard.effects import Effects

#: Patterns are not matched again sooner than this.
_REFRESH_MS_MIN = 10_000


class Patterns:
    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        #: Offset of the metadata in which topics last were new.
        self.new_topics_at = -1

    def refresh(self, effects: Effects, group: ConsumerGroup, introduced: bool) -> None:
        """Match patterns with topics again if there is a reason to and it was not done just now."""
        if not group.regexes or group.regex_refresh_pending:
            return
        now_ms = effects.now_ms
        last = next(iter(group.resolved.values()), None)
        if last is not None and now_ms <= last.timestamp_ms + _REFRESH_MS_MIN:
            return
        interval_ms: int = self._groups.config["group.consumer.regex.refresh.interval.ms"]
        if (
            introduced
            or last is None
            or len(group.regexes) != len(group.resolved)
            or last.version < self.new_topics_at
            or now_ms > last.timestamp_ms + interval_ms
        ):
            group.regex_refresh_pending = True
            group_id = group.group_id
            effects.after(("regex", group_id), 0, lambda later: self._resolve(later, group_id))

    def _resolve(self, effects: Effects, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        group.regex_refresh_pending = False
        image = self._groups.image
        bump = False
        for regex in tuple(group.regexes):
            topics = matching(regex, image.topics)
            before = group.resolved.get(regex)
            bump = bump or topics != (frozenset() if before is None else before.topics)
            resolved = ResolvedRegex(topics, image.offset, effects.now_ms)
            effects.write(
                records.ConsumerGroupRegularExpressionKey(group_id, regex),
                records.ConsumerGroupRegularExpressionValue(
                    topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
                ),
            )
        hash_ = self._groups.hash_of(group)
        if bump or hash_ != group.metadata_hash:
            self._groups.bump(effects, group, hash_)
            group.refreshed(effects.now_ms)
