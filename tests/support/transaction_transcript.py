"""Transactions as a play: a script of requests and passing time, and what the coordinator says and writes.

A line that starts with "> " is an event, the lines below it are what comes of it: a bare line is the answer, `write`
begins a record, `markers ID: ...` is what is to be marked once the decision is committed. Time is a number that `wait`
moves; timers fire on the way. `reload` throws the state away and replays the bytes of every record written so far, as a
new coordinator does.

    > init ID [timeout=MS] [expect=PRODUCER/EPOCH]
    > add ID PRODUCER/EPOCH topic-partition ... [version=2]
    > verify ID PRODUCER/EPOCH topic-partition ...
    > commit ID PRODUCER/EPOCH [version=2] | abort ID PRODUCER/EPOCH [version=2]
    > marked ID                      every marker is written
    > wait MS | reload
    > epoch ID N                     as if the producer had come to epoch N
"""

from __future__ import annotations

import difflib
import itertools
from typing import Any

from pylogd.coordinators.shard.effects import Effects
from pylogd.coordinators.shard.record_pairs import CoordinatorRecord, decode_record
from pylogd.coordinators.transactions.transaction import Transaction, TxnState
from pylogd.coordinators.transactions.transactions import MarkersDue, TransactionSettings, TransactionsState
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.end_txn import EndTxnResponse
from pylogd.protocol.messages.init_producer_id import InitProducerIdResponse

START_MS = 1_000_000
SETTINGS = TransactionSettings(id_expiration_ms=500_000, timeout_ms_max=60_000, abort_interval_ms=1000)


class Asked:
    """A reply whose refusals are codes."""

    @staticmethod
    def refuse(code: ErrorCode, message: str | None) -> ErrorCode:
        return code


class Play:
    def __init__(self, version: int) -> None:
        self.version = version
        self.now_ms = START_MS
        self.written: list[tuple[bytes, bytes | None]] = []
        self.lines: list[str] = []
        self.timers: dict[Any, tuple[int, Any]] = {}
        self._ids = itertools.count(1)
        self.state = self._new_state()
        self.run(self.state.loaded)

    def _new_state(self) -> TransactionsState:
        return TransactionsState(SETTINGS, lambda: next(self._ids), lambda transaction: None, lambda: self.version)

    # -- events

    def run(self, event: Any) -> None:
        effects = Effects(self.now_ms, self.state, base_offset=len(self.written))
        try:
            event(effects)
        except KafkaError as refusal:
            assert not effects.records, "an event that wrote something was refused"
            self.lines.append(refusal.code.name)
        for record, (key, value) in zip(effects.records, effects.encoded):
            self.written.append((bytes(key), None if value is None else bytes(value)))
            self.lines.append("write " + _record(record))
        for reply, answer in effects.replies:
            if isinstance(reply, MarkersDue):
                self.lines.append(_markers(reply.transaction))
            else:
                self.lines.append(_answer(answer))
        for name, timer in effects.timers.items():
            if timer is None:
                self.timers.pop(name, None)
            else:
                self.timers[name] = (self.now_ms + timer[0], timer[1])

    def wait(self, ms: int) -> None:
        end = self.now_ms + ms
        while True:
            due = min(((at, name) for name, (at, _) in self.timers.items() if at <= end), default=None)
            if due is None:
                break
            self.now_ms = due[0]
            _, event = self.timers.pop(due[1])
            self.run(event)
        self.now_ms = end

    def reload(self) -> None:
        self.state = self._new_state()
        self.timers.clear()
        for offset, (key, value) in enumerate(self.written):
            record = decode_record(self.state.classes, key, value)
            assert record is not None
            self.state.replay(record, offset, -1)
        self.run(self.state.loaded)

    # -- the script

    def play(self, line: str) -> None:
        what, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if what == "wait":
            self.wait(int(plain[0]))
        elif what == "reload":
            self.reload()
        elif what == "epoch":
            self.state.transactions[plain[0]].producer_epoch = int(plain[1])
        elif what == "init":
            self._init(plain[0], options)
        elif what == "marked":
            transaction = self.state.transactions[plain[0]]
            identity = (transaction.producer_id, transaction.producer_epoch)
            self.run(lambda effects: self.state.complete(effects, plain[0], *identity))
        else:
            self._ask(what, plain, int(options.get("version", 0)))

    def _init(self, transactional_id: str, options: dict[str, str]) -> None:
        expected = _identity(options["expect"]) if "expect" in options else None
        timeout_ms = int(options.get("timeout", 5000))
        self.run(lambda effects: self.state.init_producer_id(effects, Asked, transactional_id, timeout_ms, expected))

    def _ask(self, what: str, words: list[str], version: int) -> None:
        transactional_id, identity = words[0], _identity(words[1])
        partitions = [(name, int(index)) for name, index in (word.rsplit("-", 1) for word in words[2:])]
        state = self.state
        if what == "add":
            who = (transactional_id, *identity)
            self.run(lambda effects: state.add_partitions(effects, Asked, *who, partitions, version))
        elif what == "verify":
            self.run(lambda effects: state.verify_partitions(effects, Asked, transactional_id, *identity, partitions))
        else:
            commit = {"commit": True, "abort": False}[what]
            self.run(lambda effects: state.end(effects, Asked, transactional_id, *identity, commit, version))


def check(script: str, version: int = 2) -> Play:
    """Plays the events of a script; what comes of them must be what stands below them. `version` is the cluster's
    transaction.version."""
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    play = Play(version)
    for line in lines:
        if line.startswith("> "):
            play.lines.append(line)
            play.play(line[2:])
    assert play.lines == lines, "\n" + "\n".join(difflib.unified_diff(lines, play.lines, "script", "play", lineterm=""))
    return play


def _identity(text: str) -> tuple[int, int]:
    producer_id, epoch = text.split("/")
    return int(producer_id), int(epoch)


def _record(record: CoordinatorRecord) -> str:
    key: Any = record.key
    value: Any = record.value
    if value is None:
        return f"{key.transactional_id} gone"
    state = TxnState(value.transaction_status)
    parts = [key.transactional_id, state.label, f"{value.producer_id}/{value.producer_epoch}"]
    if value.next_producer_id >= 0:
        parts.append(f"next {value.next_producer_id}")
    parts += [f"{topic.topic}-{index}" for topic in value.transaction_partitions or () for index in topic.partition_ids]
    if value.transaction_start_timestamp_ms >= 0:
        parts.append(f"since {value.transaction_start_timestamp_ms - START_MS}")
    parts.append(f"tv{value.client_transaction_version}")
    return " ".join(parts)


def _markers(transaction: Transaction) -> str:
    where = " ".join(f"{topic}-{index}" for topic, index in transaction.unmarked)
    identity = f"{transaction.producer_id}/{transaction.producer_epoch}"
    return f"markers {transaction.transactional_id}: {transaction.state.label} {identity} {where}".rstrip()


def _answer(answer: Any) -> str:
    if isinstance(answer, ErrorCode):
        return answer.name
    if isinstance(answer, InitProducerIdResponse | EndTxnResponse):
        return f"ok {answer.producer_id}/{answer.producer_epoch}" if answer.producer_id >= 0 else "ok"
    return " ".join(f"{topic}-{index}:{code.name}" for (topic, index), code in answer.items())
