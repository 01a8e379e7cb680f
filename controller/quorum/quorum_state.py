"""The `quorum-state` file: what a voter must not forget over a restart, its epoch and its vote.

One line of JSON as Kafka writes it; data_version 1 with kraft.version 1 (the vote names a directory), 0 before (the
static voters are listed). Crash policy: written beside itself as `.tmp`, fsynced, renamed, directory fsynced; a vote or
an epoch leaves this node only after that.
"""

from __future__ import annotations

import json

from pylogd.controller.raft.output import HardState
from pylogd.controller.raft.voters import ReplicaKey
from pylogd.protocol import uuids
from pylogd.runtime.files import FileSystem

FILE_NAME = "quorum-state"
UNKNOWN_LEADER = -1
NOT_VOTED = -1


class QuorumState:
    """Epoch, its leader if known, and the vote given in it."""

    __slots__ = ("epoch", "leader_id", "voted_directory", "voted_id", "voters")

    def __init__(
        self,
        epoch: int = 0,
        leader_id: int = UNKNOWN_LEADER,
        voted_id: int = NOT_VOTED,
        voted_directory: bytes = uuids.ZERO,
        voters: tuple[int, ...] = (),
    ) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted_id = voted_id
        self.voted_directory = voted_directory
        self.voters = voters

    @classmethod
    def of(cls, state: HardState, voters: tuple[int, ...]) -> QuorumState:
        """What the Raft core wants remembered."""
        return cls(
            state.epoch,
            UNKNOWN_LEADER if state.leader_id is None else state.leader_id,
            NOT_VOTED if state.voted is None else state.voted.id,
            uuids.ZERO if state.voted is None else state.voted.directory_id,
            voters,
        )

    @property
    def hard_state(self) -> HardState:
        return HardState(
            self.epoch,
            None if self.leader_id == UNKNOWN_LEADER else self.leader_id,
            None if self.voted_id == NOT_VOTED else ReplicaKey(self.voted_id, self.voted_directory),
        )

    def to_json(self, data_version: int) -> str:
        fields: dict[str, object]
        if data_version == 0:
            fields = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in self.voters],
            }
        else:
            fields = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": uuids.to_text(self.voted_directory),
            }
        fields["data_version"] = data_version
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> QuorumState:
        """ValueError for anything that is not a quorum state of a known version."""
        fields = json.loads(text.split("\n", 1)[0])
        if not isinstance(fields, dict):
            raise ValueError("quorum-state does not hold an object")
        version = fields.get("data_version")
        if version not in (0, 1):
            raise ValueError(f"quorum-state has data_version {version}; 0 and 1 are supported")
        try:
            directory = uuids.from_text(fields["votedDirectoryId"]) if version == 1 else uuids.ZERO
            voters = tuple(voter["voterId"] for voter in fields.get("currentVoters") or ())
            return cls(fields["leaderEpoch"], fields["leaderId"], fields["votedId"], directory, voters)
        except (KeyError, TypeError) as error:
            raise ValueError(f"quorum-state lacks a field: {error}") from None


def read_quorum_state(files: FileSystem, directory: str) -> QuorumState | None:
    """The state of the metadata log in `directory`; None when it never took part in an election."""
    path = f"{directory}/{FILE_NAME}"
    return QuorumState.from_json(files.read_bytes(path).decode()) if files.exists(path) else None


def write_quorum_state(files: FileSystem, directory: str, state: QuorumState, data_version: int) -> None:
    """Durable when it returns."""
    files.write_atomically(f"{directory}/{FILE_NAME}", state.to_json(data_version).encode())
