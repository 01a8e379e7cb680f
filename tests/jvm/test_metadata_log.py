"""Kafka's decoder reads every metadata record we write, in the log and in snapshots, and sees what we meant."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pylogd.controller.quorum.metadata_log import DIRECTORY
from pylogd.metadata.record_batches import decode_batches
from pylogd.protocol.messages import metadata_records as m
from support.controllers import RunningController
from support.jvm import ToolHost
from support.tools import dump

pytestmark = pytest.mark.jvm

ID = bytes(range(1, 17))


def every_record() -> list[tuple[Any, int]]:
    """One of each type that a log may hold, in an order in which it may hold them, at the versions we write."""
    entity = [m.EntityData(entity_type="user", entity_name=None)]
    partition = m.PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[7, 8], isr=[7], leader=7, leader_epoch=3, partition_epoch=4,
        leader_recovery_state=1, removing_replicas=[8], adding_replicas=[7], directories=[ID, bytes(16)],
        eligible_leader_replicas=[8], last_known_elr=[7],
    )  # fmt: skip
    change = m.PartitionChangeRecord(
        partition_id=0, topic_id=ID, isr=[7, 8], leader=8, replicas=[7, 8], removing_replicas=[], adding_replicas=[],
        leader_recovery_state=0, directories=[ID, ID], eligible_leader_replicas=[], last_known_elr=[],
    )  # fmt: skip
    broker = m.RegisterBrokerRecord(
        broker_id=7, incarnation_id=ID, broker_epoch=9, rack="r", log_dirs=[ID], cordoned_log_dirs=[],
        end_points=[m.BrokerEndpoint(name="PLAINTEXT", host="h", port=65535)],
        features=[m.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    )  # fmt: skip
    changed = m.BrokerRegistrationChangeRecord(
        broker_id=7, broker_epoch=9, fenced=-1, in_controlled_shutdown=1, log_dirs=[ID], cordoned_log_dirs=[ID]
    )
    acl = m.AccessControlEntryRecord(
        id=ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    scram = m.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
    )
    token = m.DelegationTokenRecord(
        owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1, max_timestamp=2,
        expiration_timestamp=3, token_id="token",
    )  # fmt: skip
    controller = m.RegisterControllerRecord(
        controller_id=7, incarnation_id=ID, end_points=[m.ControllerEndpoint(name="C", host="h", port=1)],
        features=[m.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
    )  # fmt: skip
    return [
        (broker, 4),
        (changed, 3),
        (m.FenceBrokerRecord(id=7, epoch=9), 0),
        (m.UnfenceBrokerRecord(id=7, epoch=9), 0),
        (m.TopicRecord(name="t", topic_id=ID), 0),
        (m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"), 0),
        (m.ConfigRecord(resource_type=2, resource_name="t", name="segment.ms", value=None), 0),
        (partition, 2),
        (m.ClearElrRecord(topic_name="t"), 0),
        (change, 2),
        (m.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.5), 0),
        (m.ProducerIdsRecord(broker_id=7, broker_epoch=9, next_producer_id=5000), 0),
        (acl, 0),
        (scram, 0),
        (token, 0),
        (controller, 0),
        (m.NoOpRecord(), 0),
        (m.ZkMigrationStateRecord(zk_migration_state=3), 0),
        (m.BeginTransactionRecord(name="x"), 0),
        (m.AbortTransactionRecord(reason="y"), 0),
    ]


def removals() -> list[tuple[Any, int]]:
    return [
        (m.RemoveTopicRecord(topic_id=ID), 0),
        (m.RemoveAccessControlEntryRecord(id=ID), 0),
        (m.RemoveUserScramCredentialRecord(name="u", mechanism=1), 0),
        (m.RemoveDelegationTokenRecord(token_id="token"), 0),
        (m.UnregisterBrokerRecord(broker_id=7, broker_epoch=9), 0),
    ]


def decoded_by_kafka(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for payload in re.findall(r"^\| offset: .* payload: (\{.*\})$", text, re.MULTILINE):
        record = json.loads(payload)
        found.append((record["type"], record["data"]))
    return found


def kafka_type(record: Any) -> str:
    """TopicRecord -> TOPIC_RECORD."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).upper()


def ours(path: Path) -> list[Any]:
    return [record for batch in decode_batches(path.read_bytes()) if not batch.control for record in batch.records]


def shell(tools: ToolHost, snapshot: Path, *command: str) -> str:
    """What Kafka's metadata shell shows of a snapshot."""
    result = tools.run("org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot), *command)
    assert (result.code, result.timed_out) == (0, False), result
    return result.stdout


def test_log_and_snapshot(tmp_path: Path, tools: ToolHost) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            c.controller._append(every_record(), atomic=False)
            c.driver.start_snapshot(c.controller.state.image)
            assert c.driver.snapshots.task is not None
            await c.driver.snapshots.task
            c.controller._append(removals())

    asyncio.run(main())
    folder = tmp_path / DIRECTORY
    snapshot = max(folder.glob("*.checkpoint"))
    for path in (*folder.glob("*.log"), snapshot):
        text = dump(tools, path, "--cluster-metadata-decoder", "--deep-iteration")
        assert "isvalid: false" not in text
        theirs = decoded_by_kafka(text)
        assert [kind for kind, _ in theirs] == [kafka_type(record) for record in ours(path)]
    text = dump(tools, snapshot, "--cluster-metadata-decoder")
    for control in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert control in text
    data = dict(decoded_by_kafka(text))
    assert data["PARTITION_RECORD"]["isr"] == [7, 8]
    assert data["PARTITION_RECORD"]["directories"] == ["AQIDBAUGBwgJCgsMDQ4PEA"] * 2
    assert data["REGISTER_BROKER_RECORD"]["cordonedLogDirs"] == ["AQIDBAUGBwgJCgsMDQ4PEA"]
    assert data["USER_SCRAM_CREDENTIAL_RECORD"]["iterations"] == 4096
    assert data["CLIENT_QUOTA_RECORD"]["value"] == 1.5
    tree = shell(tools, snapshot, "tree", "/image")
    assert "isr=[7, 8]" in tree
    assert "BrokerRegistration(id=7, epoch=9" in tree
    assert re.search(r"TOPIC:t:\s+retention.ms:\s+1\s", tree)
