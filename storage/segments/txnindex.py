"""The aborted transactions whose abort marker lies in a segment: what READ_COMMITTED consumers must skip.

Bytes of `.txnindex` (Kafka's): entries of 34 bytes, big endian:
    version int16 = 0 | producer id int64 | first offset int64 | last offset int64 (the marker)
    | last stable offset int64
in the order of their markers. The last stable offset is the one at the time of the abort: no transaction that aborts
later starts below it, so a search up to some offset ends at the first entry whose last stable offset reaches it.

Crash policy: the file exists only when there is an entry. Recovery rebuilds it from the markers of the segment,
together with the producer state; a torn last entry is never read, because only whole entries count.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from pylogd.runtime.files import DISK_FULL_ERRORS, File, FileSystem

ENTRY = Struct(">hqqqq")
SUFFIX = ".txnindex"


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return ENTRY.pack(0, *self)


class CorruptTxnIndex(Exception):
    """An entry cannot belong to this segment; recovery of the segment rebuilds the file."""


def decode(data: bytes) -> list[AbortedTxn]:
    whole = len(data) - len(data) % ENTRY.size
    entries = []
    for version, *fields in ENTRY.iter_unpack(data[:whole]):
        if version > 0:
            raise CorruptTxnIndex(f"unexpected aborted transaction version {version}")
        entries.append(AbortedTxn(*fields))
    return entries


def collect(entries: Iterable[AbortedTxn], fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
    """The aborted transactions that overlap [fetch_offset, upper_offset), and whether later segments can be left
    out."""
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False


class TransactionIndex:
    """The index of one segment. Entries stay in memory once read: aborts are few, and the files mostly do not exist."""

    __slots__ = ("_behind", "_entries", "_file", "_files", "_synced", "base_offset")

    def __init__(self, files: FileSystem, path: str, base_offset: int, new: bool = False) -> None:
        self._files = files
        self._file: File = files.file(path)
        self.base_offset = base_offset
        self._synced = True
        self._behind = False
        self._entries: list[AbortedTxn] | None = [] if new else None

    @property
    def path(self) -> str:
        return self._file.path

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = decode(self._files.read_bytes(self._file.path)) if self.exists() else []
        return self._entries

    @property
    def empty(self) -> bool:
        return not self.entries()

    def append(self, aborted: AbortedTxn) -> None:
        entries = self.entries()
        if entries and entries[-1].last_offset >= aborted.last_offset:
            raise ValueError(
                f"{self.path}: the last offset {aborted.last_offset} is not above {entries[-1].last_offset}"
            )
        entries.append(aborted)
        self._synced = False
        try:
            self._write(len(entries) - 1)
        except OSError as error:
            # The marker is in the log already, so the entry must count. It stays in memory, and `sync` insists.
            if error.errno not in DISK_FULL_ERRORS:
                raise
            self._behind = True

    def _write(self, first: int) -> None:
        if self._behind:
            first = 0
        entries = self.entries()
        self._file.pwrite(b"".join(entry.encode() for entry in entries[first:]), first * ENTRY.size)
        self._behind = False

    def collect(self, fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
        return collect(self.entries(), fetch_offset, upper_offset)

    def truncate_to(self, offset: int) -> None:
        """Forgets the transactions whose marker is at or behind `offset`."""
        entries = self.entries()
        keep = next((n for n, entry in enumerate(entries) if entry.last_offset >= offset), len(entries))
        if keep < len(entries):
            self._file.truncate(keep * ENTRY.size)
            self._entries = entries[:keep]
            self._synced = False

    def reset(self) -> None:
        """Empties the index before it is rebuilt."""
        if self.exists():
            self._file.truncate(0)
        self._entries = []

    def sanity_check(self) -> None:
        for entry in self.entries():
            if entry.last_offset < self.base_offset:
                raise CorruptTxnIndex(f"{self.path}: {entry} lies below the segment's base offset {self.base_offset}")

    @property
    def unsynced(self) -> bool:
        return not self._synced

    def sync(self) -> None:
        if not self._synced:
            self._synced = True
            try:
                if self._behind:
                    self._write(0)
                self._file.fsync()
            except BaseException:
                self._synced = False
                raise

    def exists(self) -> bool:
        return self._files.exists(self.path)

    def rename(self, path: str) -> None:
        if self.exists():
            self._file.rename(path)
        else:
            self._file.path = path

    def moved(self, path: str) -> None:
        """The directory was renamed around us."""
        self._file.path = path

    def close(self) -> None:
        if self._behind:
            self._write(0)
        self._file.close()
