"""Java's transactional producer behind the face of `support.transactional`: many producers in one JVM."""

from __future__ import annotations

import itertools
import os
import subprocess

from support.jvm import compiled, tool_command
from support.transactional import Fenced, TransactionalProducer

FENCED = ("ProducerFencedException", "InvalidProducerEpochException")


class TransactionDriver:
    """The JVM."""

    def __init__(self, bootstrap: str) -> None:
        command = tool_command("TransactionDriver", bootstrap)
        command[command.index("-cp") + 1] += os.pathsep + str(compiled("TransactionDriver.java"))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._names = itertools.count(1)

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        outcome, _, text = answer.partition(" ")
        if outcome == "ok":
            return text
        if text.startswith(FENCED):
            raise Fenced(text)
        raise RuntimeError(f"{' '.join(map(str, words))}: {answer}")

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> JavaTransactions:
        return JavaTransactions(self, f"p{next(self._names)}", transactional_id, timeout_ms)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class JavaTransactions(TransactionalProducer):
    name = "java"

    def __init__(self, driver: TransactionDriver, name: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._driver = driver
        self._name = name
        driver.ask(name, "init", transactional_id, timeout_ms)

    def begin(self) -> None:
        self._driver.ask(self._name, "begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        return int(self._driver.ask(self._name, "send", topic, partition, value.decode()))

    def send_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        [((topic, partition), offset)] = offsets.items()
        self._driver.ask(self._name, "offsets", group, topic, partition, offset)

    def commit(self) -> None:
        self._driver.ask(self._name, "commit")

    def abort(self) -> None:
        self._driver.ask(self._name, "abort")

    def close(self) -> None:
        self._driver.ask(self._name, "close")
