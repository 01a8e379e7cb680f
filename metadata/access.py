"""The part of the image that says who may do what: ACLs, SCRAM credentials and delegation tokens.

Nothing is decided by them yet. They are kept because a snapshot must not lose what another controller of the cluster
wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

from pylogd.metadata.replay_error import ReplayError
from pylogd.protocol.messages import metadata_records as m

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pylogd.protocol.schema import Message


class AccessImage:
    """Every entry is the record that made it."""

    __slots__ = ("acls", "delegation_tokens", "scram")

    def __init__(self) -> None:
        self.acls: dict[bytes, m.AccessControlEntryRecord] = {}
        self.scram: dict[tuple[str, int], m.UserScramCredentialRecord] = {}
        self.delegation_tokens: dict[str, m.DelegationTokenRecord] = {}

    def records(self) -> Iterator[Message]:
        """Those whose replay gives this state again."""
        return chain(self.acls.values(), self.scram.values(), self.delegation_tokens.values())

    def replay(self, record: Message, offset: int) -> None:
        _REPLAYED_BY[type(record)](self, record, offset)

    def _scram(self, record: m.UserScramCredentialRecord, offset: int) -> None:
        self.scram[(record.name, record.mechanism)] = record

    def _remove_scram(self, record: m.RemoveUserScramCredentialRecord, offset: int) -> None:
        if self.scram.pop((record.name, record.mechanism), None) is None:
            raise ReplayError(f"no SCRAM credential of {record.name} to remove at offset {offset}")

    def _acl(self, record: m.AccessControlEntryRecord, offset: int) -> None:
        self.acls[bytes(record.id)] = record

    def _remove_acl(self, record: m.RemoveAccessControlEntryRecord, offset: int) -> None:
        if self.acls.pop(bytes(record.id), None) is None:
            raise ReplayError(f"no ACL {bytes(record.id).hex()} to remove at offset {offset}")

    def _token(self, record: m.DelegationTokenRecord, offset: int) -> None:
        self.delegation_tokens[record.token_id] = record

    def _remove_token(self, record: m.RemoveDelegationTokenRecord, offset: int) -> None:
        self.delegation_tokens.pop(record.token_id, None)

    def freeze(self) -> AccessImage:
        """A copy that no later replay touches."""
        copy = AccessImage()
        copy.acls = dict(self.acls)
        copy.scram = dict(self.scram)
        copy.delegation_tokens = dict(self.delegation_tokens)
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessImage) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


_REPLAYED_BY: dict[type[Message], Callable[[AccessImage, Any, int], None]] = {
    m.UserScramCredentialRecord: AccessImage._scram,
    m.RemoveUserScramCredentialRecord: AccessImage._remove_scram,
    m.AccessControlEntryRecord: AccessImage._acl,
    m.RemoveAccessControlEntryRecord: AccessImage._remove_acl,
    m.DelegationTokenRecord: AccessImage._token,
    m.RemoveDelegationTokenRecord: AccessImage._remove_token,
}
