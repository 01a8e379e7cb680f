"""Who votes: replica keys, their endpoints, voter sets, and the history of voter sets that lives in the log.

A voter is an id together with the id of the directory that holds its log, so that a replica whose disk was wiped, which
has forgotten its votes, is not taken for the one that gave them. Voters of `controller.quorum.voters` (kraft.version 0)
have no directory id (ZERO): the id alone decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pylogd.protocol.uuids import ZERO, to_text

if TYPE_CHECKING:
    from pylogd.protocol.messages.control_records import VotersRecord

T = TypeVar("T")

#: listener name -> (host, port)
Endpoints = Mapping[str, tuple[str, int]]
NO_ENDPOINTS: Endpoints = {}


class ReplicaKey(NamedTuple):
    id: int
    directory_id: bytes = ZERO

    def __repr__(self) -> str:
        directory = "<undefined>" if self.directory_id == ZERO else to_text(self.directory_id)
        return f"ReplicaKey(id={self.id}, directoryId={directory})"


class Node(NamedTuple):
    """Where a request goes. Bootstrap servers, whose ids are not known, count down from -2."""

    id: int
    host: str
    port: int


class VoterNode(NamedTuple):
    key: ReplicaKey
    endpoints: Endpoints
    kraft_versions: tuple[int, int] = (0, 0)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether a replica that calls itself `key` is this voter."""
        return self.key.id == key.id and self.key.directory_id in (ZERO, key.directory_id)


class VoterSet:
    """Voters by id. Never changes; the methods return a new set, or None when the change does not apply."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}

    @classmethod
    def static(cls, listener: str, addresses: Mapping[int, tuple[str, int]]) -> VoterSet:
        """The voters of controller.quorum.voters, which are reached at `listener`."""
        return cls(VoterNode(ReplicaKey(id_), {listener: address}) for id_, address in addresses.items())

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        """The set in a VotersRecord."""
        return cls(
            VoterNode(
                ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
                {e.name: (e.host, e.port) for e in voter.endpoints},
                (voter.kraft_version_feature.min_supported_version, voter.kraft_version_feature.max_supported_version),
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        """This set as a VotersRecord."""
        from pylogd.protocol.messages import control_records as c

        return c.VotersRecord(
            version=0,
            voters=[
                c.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        c.Endpoint(name=name, host=host, port=port) for name, (host, port) in voter.endpoints.items()
                    ],
                    kraft_version_feature=c.KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self
            ],
        )

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self.keys))

    def __repr__(self) -> str:
        return f"VoterSet({[voter.key for voter in self]})"

    @property
    def ids(self) -> list[int]:
        return list(self._voters)

    @property
    def keys(self) -> list[ReplicaKey]:
        return [voter.key for voter in self._voters.values()]

    def get(self, voter_id: int) -> VoterNode | None:
        return self._voters.get(voter_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.is_voter(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and self.is_voter(key)

    def endpoints(self, voter_id: int) -> Endpoints:
        voter = self._voters.get(voter_id)
        return NO_ENDPOINTS if voter is None else voter.endpoints

    def node(self, voter_id: int, listener: str) -> Node | None:
        address = self.endpoints(voter_id).get(listener)
        return None if address is None else Node(voter_id, *address)

    def needs_update(self, voter: VoterNode) -> bool:
        """Whether `voter` is in the set under this key, with other endpoints or versions."""
        known = self._voters.get(voter.key.id)
        return known is not None and known.is_voter(voter.key) and known != voter

    def add(self, voter: VoterNode) -> VoterSet | None:
        return None if voter.key.id in self._voters else VoterSet([*self, voter])

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """The last voter cannot go."""
        known = self._voters.get(key.id)
        if known is None or known.key != key or len(self._voters) == 1:
            return None
        return VoterSet(voter for voter in self if voter.key.id != key.id)

    def update(self, voter: VoterNode, *, any_directory: bool = False) -> VoterSet | None:
        known = self._voters.get(voter.key.id)
        if known is None or not (any_directory or known.is_voter(voter.key)):
            return None
        return VoterSet({**self._voters, voter.key.id: voter}.values())


class History(Generic[T]):
    """Values by the offset of the record that set them."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[T] = []

    def add(self, offset: int, value: T) -> None:
        self.truncate_from(offset)
        self._offsets.append(offset)
        self._values.append(value)

    @property
    def last(self) -> tuple[int, T] | None:
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    @property
    def before_last(self) -> T | None:
        """What the last value replaced."""
        return self._values[-2] if len(self._values) > 1 else None

    def at(self, offset: int) -> T | None:
        """The value in force once the record at `offset` is in the log."""
        slot = bisect_right(self._offsets, offset)
        return self._values[slot - 1] if slot else None

    def truncate_from(self, end_offset: int) -> None:
        """Forgets values of records at or behind `end_offset`."""
        keep = bisect_left(self._offsets, end_offset)
        del self._offsets[keep:], self._values[keep:]

    def truncate_before(self, start_offset: int) -> None:
        """Forgets values that a later one before `start_offset` had replaced."""
        passed = bisect_right(self._offsets, start_offset)
        if passed > 1:
            del self._offsets[: passed - 1], self._values[: passed - 1]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class Membership:
    """Voters and kraft.version as the log has them, committed or not: they take effect when they are appended."""

    __slots__ = ("static", "versions", "voter_sets")

    def __init__(self, static: VoterSet) -> None:
        self.static = static
        self.voter_sets: History[VoterSet] = History()
        self.versions: History[int] = History()

    @property
    def voters(self) -> VoterSet:
        last = self.voter_sets.last
        return self.static if last is None else last[1]

    @property
    def voters_offset(self) -> int | None:
        """Where the voters were written: None when they are static, -1 when they come from a bootstrap snapshot."""
        last = self.voter_sets.last
        return None if last is None else last[0]

    @property
    def kraft_version(self) -> int:
        last = self.versions.last
        return 0 if last is None else last[1]

    def truncate_from(self, end_offset: int) -> None:
        self.voter_sets.truncate_from(end_offset)
        self.versions.truncate_from(end_offset)

    def truncate_before(self, start_offset: int) -> None:
        self.voter_sets.truncate_before(start_offset)
        self.versions.truncate_before(start_offset)

    def clear(self) -> None:
        self.voter_sets.clear()
        self.versions.clear()

    def replay(self, data: bytes | bytearray | memoryview, at: int | None = None) -> None:
        """Takes over the control records in these batches; `at` stands for their offsets in a snapshot."""
        from pylogd.metadata.record_batches import decode_control
        from pylogd.protocol import batch as batches
        from pylogd.protocol.control import ControlType

        view = memoryview(data)
        for pos, header in batches.iter_headers(view):
            if not header.is_control:
                continue
            records = batches.iter_records(view[pos : pos + header.length])
            for offset, raw in enumerate(records, header.base_offset):
                record = decode_control(raw.key, raw.value)
                where = offset if at is None else at
                if record.kind is ControlType.KRAFT_VERSION:
                    self.versions.add(where, record.message.kraft_version)
                elif record.kind is ControlType.KRAFT_VOTERS:
                    self.voter_sets.add(where, VoterSet.from_record(record.message))
