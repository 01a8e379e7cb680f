"""What every kind of group has in common, as requests, offsets and the admin calls see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pylogd.coordinators.groups.commits import CommittedOffset
    from pylogd.coordinators.shard.effects import Effects

CLASSIC = "classic"
CONSUMER = "consumer"
UNKNOWN_MEMBER = ""


class Caller(NamedTuple):
    """Who sends a request, at which version."""

    version: int
    client_id: str
    host: str


class Group(Protocol):
    """KafkaError from a check is the answer to the request."""

    kind: str
    group_id: str

    @property
    def is_empty(self) -> bool:
        """No members."""

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it."""

    @property
    def listed_protocol_type(self) -> str:
        """The protocol type as ListGroups shows it."""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> Callable[[str, bytes, int], None] | None:
        """May this member commit? What is returned is still to be asked for each topic, its id and partition."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """May this member fetch offsets?"""

    def check_offset_delete(self) -> None:
        """May offsets be deleted?"""

    def check_delete(self) -> None:
        """May the group be deleted?"""

    def is_subscribed_to(self, topic: str) -> bool:
        """Offsets of subscribed topics neither expire nor may be deleted."""

    def expiration_base(self) -> Callable[[CommittedOffset], int] | None:
        """From when on the retention of an offset counts; None: nothing expires now."""

    def write_tombstones(self, effects: Effects) -> None:
        """Delete every record of the group and cancel its timers."""
