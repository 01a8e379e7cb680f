"""Members of a consumer group as processes (see member.py): started, stopped, killed, frozen; and what they read,
counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.clients import CLIENTS, Message
from support.jvm import tool_command
from support.pause import pause
from support.wait import eventually

LIBRARIES = ["kafka-python", "aiokafka", "confluent-kafka"]
_SCRIPT = Path(__file__).with_name("member.py")


class Member:
    ends_with = 0

    def __init__(self, library: str, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
        self.library = library
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            self._command(bootstrap, group, topic, settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        self.errors = ""
        self._readers = [threading.Thread(target=self._listen, daemon=True), threading.Thread(target=self._complain)]
        for reader in self._readers:
            reader.daemon = True
            reader.start()

    def _command(self, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> list[str]:
        words = [f"{name}={value}" for name, value in settings.items()]
        return [sys.executable, "-P", str(_SCRIPT), self.library, bootstrap, group, topic, *words]

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # the last line of a process that was killed
                self._heard(json.loads(line))

    def _heard(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def _complain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = (self.errors + line)[-20_000:]

    def of(self, what: str) -> list[dict[str, Any]]:
        return [event for event in tuple(self.events) if event["what"] == what]

    @property
    def assignment(self) -> set[int]:
        """What it has now. Assignments of cooperative protocols come in parts; an eager one begins with nothing."""
        held: set[int] = set()
        for event in tuple(self.events):
            if event["what"] == "assigned":
                held |= set(event["partitions"])
            elif event["what"] in ("revoked", "lost"):
                held -= set(event["partitions"])
        return held

    def leave(self) -> None:
        """Leave the group in good order."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        assert code == self.ends_with, f"{self.library} ended with {code}:\n{self.errors}"
        self._readers[0].join(10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._readers[0].join(10)

    def freeze(self) -> None:
        pause(self.process.pid)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stall(self) -> None:
        """Stop polling."""
        self.process.send_signal(signal.SIGUSR1)

    def go_on(self) -> None:
        """Poll again."""
        self.process.send_signal(signal.SIGUSR2)

    @property
    def running(self) -> bool:
        return self.process.poll() is None


class JavaMember(Member):
    """Kafka's VerifiableConsumer, which does as ours does and says it in its own words."""

    ends_with = 143  # a JVM that was asked to end by a signal says so

    def _command(self, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> list[str]:
        names = {"group.protocol": "--group-protocol", "group.instance.id": "--group-instance-id"}
        options = [word for name, value in settings.items() if name in names for word in (names[name], value)]
        args = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--reset-policy", "earliest"]
        return tool_command("org.apache.kafka.tools.VerifiableConsumer", *args, *options)

    def _heard(self, event: dict[str, Any]) -> None:
        at = time.monotonic_ns()
        name, parts = event.get("name", ""), event.get("partitions", [])
        if name in ("partitions_assigned", "partitions_revoked"):
            what = name.removeprefix("partitions_")
            self.events.append({"what": what, "at": at, "partitions": sorted(each["partition"] for each in parts)})
        elif name == "records_consumed":
            records = [
                (each["partition"], offset)
                for each in parts
                for offset in range(each["minOffset"], each["maxOffset"] + 1)
            ]
            self.events.append({"what": "read", "at": at, "records": records})
        elif name == "offsets_committed" and event["success"]:
            offsets = [(each["partition"], each["offset"]) for each in event["offsets"]]
            self.events.append({"what": "committed", "at": at, "offsets": offsets})


@dataclass
class Members:
    """Every member that a test ever had in one group."""

    bootstrap: str
    group: str
    topic: str
    partitions: int
    settings: dict[str, str] = field(default_factory=dict)
    all: list[Member] = field(default_factory=list)

    def start(self, library: str, **settings: str) -> Member:
        given = {**self.settings, **{name.replace("_", "."): value for name, value in settings.items()}}
        kind = JavaMember if library == "java" else Member
        member = kind(library, self.bootstrap, self.group, self.topic, given)
        self.all.append(member)
        return member

    def stop(self) -> None:
        for member in self.all:
            if member.running:
                member.thaw()
                member.kill()

    def wait_shared(self, *members: Member, timeout_s: float = 90) -> None:
        """Until these members, and only they, have all partitions between them, each at least one if there are
        enough."""
        least = 1 if len(members) <= self.partitions else 0

        def shared() -> bool:
            for member in members:
                assert member.running, member.errors
            shares = [member.assignment for member in members]
            together = [partition for share in shares for partition in share]
            return sorted(together) == list(range(self.partitions)) and all(len(share) >= least for share in shares)

        try:
            eventually(shared, timeout_s=timeout_s)
        except AssertionError:
            shares = [(member.library, sorted(member.assignment), member.events[-4:]) for member in members]
            raise AssertionError(f"not shared: {shares}\n" + "\n".join(m.errors[-2000:] for m in members)) from None

    def read(self) -> dict[int, set[int]]:
        """Offsets read by anybody, by partition."""
        found: dict[int, set[int]] = {partition: set() for partition in range(self.partitions)}
        for member in self.all:
            for event in member.of("read"):
                for partition, offset in event["records"]:
                    found[partition].add(offset)
        return found

    def wait_read(self, total: int, timeout_s: float = 60) -> None:
        count = lambda: sum(map(len, self.read().values()))  # noqa: E731
        try:
            eventually(lambda: count() >= total, timeout_s=timeout_s)
        except AssertionError:
            raise AssertionError(f"{count()} of {total} records read") from None

    def check_counts(self, per_partition: int) -> None:
        """No record skipped; none read again that was known to be committed when its reader began."""
        for partition, offsets in self.read().items():
            assert offsets == set(range(per_partition)), (
                f"partition {partition}: {sorted(set(range(per_partition)) - offsets)[:10]} were skipped"
            )
        commits = [
            (event["at"], partition, offset)
            for member in self.all
            for event in member.of("committed")
            for partition, offset in event["offsets"]
        ]
        for member in self.all:
            began: dict[int, int] = {}
            for event in member.events:
                if event["what"] == "assigned":
                    began.update(dict.fromkeys(event["partitions"], event["at"]))
                elif event["what"] == "read":
                    for partition, offset in event["records"]:
                        known = [end for at, where, end in commits if where == partition and at < began[partition]]
                        assert offset >= max(known, default=0), (
                            f"{member.library} read {partition}:{offset}, though {max(known)} was committed before"
                        )


class Source:
    """Fills every partition of the members' topic evenly."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.per_partition = 0

    def produce(self, count: int) -> None:
        values = [
            Message(str(self.per_partition + n).encode(), partition=partition)
            for n in range(count)
            for partition in range(self._members.partitions)
        ]
        CLIENTS[0].produce(self._members.bootstrap, self._members.topic, values)
        self.per_partition += count

    def wait_read(self) -> None:
        self._members.wait_read(self.per_partition * self._members.partitions)
