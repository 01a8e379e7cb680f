"""The image is what its records add up to: replay, snapshots, deltas."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.difference import difference
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import decode_batches, decode_record, encode_record, metadata_batch
from pylogd.metadata.replay_error import ReplayError
from pylogd.metadata.snapshot import SnapshotId, image_records, replay_snapshot, snapshot_batches
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.messages import metadata_records as m

ID = bytes(range(16))


def replayed(*records: Any, image: ClusterImage | None = None) -> ClusterImage:
    image = image or ClusterImage()
    for record in records:
        image.replay(record, image.offset + 1)
    return image


BASE = [
    m.FeatureLevelRecord(name="metadata.version", feature_level=30),
    m.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    m.RegisterBrokerRecord(
        broker_id=1,
        broker_epoch=7,
        incarnation_id=ID,
        end_points=[m.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
        features=[m.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack="r",
        log_dirs=[b"d" * 16],
    ),
    m.TopicRecord(name="t", topic_id=ID),
    m.PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[b"d" * 16, b"e" * 16],
    ),
]  # fmt: skip


def test_every_record_type_is_replayed() -> None:
    from pylogd.metadata.image import _REPLAYED_BY

    assert set(_REPLAYED_BY) == set(m.METADATA_RECORDS.values())
    assert len(_REPLAYED_BY) == 26


def test_a_partition_change_touches_only_what_it_names() -> None:
    image = replayed(*BASE)
    before = image.topics["t"].partitions[0]
    replayed(m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]), image=image)
    after = image.topics["t"].partitions[0]
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((1,), 1, 0, 1)
    assert (after.replicas, after.directories) == (before.replicas, before.directories)
    replayed(m.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1), image=image)
    assert image.topics["t"].partitions[0].leader_epoch == 1, "the same leader again is a new epoch"
    replayed(m.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1, isr=[]), image=image)
    assert (image.topics["t"].partitions[0].leader, image.topics["t"].partitions[0].isr) == (-1, ())


def test_broker_changes() -> None:
    image = replayed(*BASE)
    assert image.brokers[1].fenced
    change = m.BrokerRegistrationChangeRecord
    replayed(change(broker_id=1, broker_epoch=7, fenced=-1), image=image)
    assert image.brokers[1].is_active
    replayed(change(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), image=image)
    assert not image.brokers[1].is_active
    assert not image.brokers[1].fenced
    replayed(change(broker_id=1, broker_epoch=7, log_dirs=[b"x" * 16], cordoned_log_dirs=[]), image=image)
    assert image.brokers[1].directories == (b"x" * 16,)
    assert image.brokers[1].cordoned_directories == ()
    replayed(m.FenceBrokerRecord(id=1, epoch=7), image=image)
    assert image.brokers[1].fenced
    replayed(m.UnfenceBrokerRecord(id=1, epoch=7), image=image)
    assert not image.brokers[1].fenced
    replayed(m.UnregisterBrokerRecord(broker_id=1, broker_epoch=7), image=image)
    assert image.brokers == {}


def test_clear_elr_of_one_topic_and_of_all() -> None:
    other = m.TopicRecord(name="u", topic_id=b"u" * 16)
    partitions = [
        m.PartitionRecord(
            partition_id=0, topic_id=i, replicas=[1], isr=[], leader=-1, leader_epoch=0, partition_epoch=0,
            directories=[b"d" * 16], eligible_leader_replicas=[1], last_known_elr=[1],
        )
        for i in (ID, b"u" * 16)
    ]  # fmt: skip
    image = replayed(*BASE[:4], other, *partitions, m.ClearElrRecord(topic_name="t"))
    assert (image.topics["t"].partitions[0].elr, image.topics["u"].partitions[0].elr) == ((), (1,))
    replayed(m.ClearElrRecord(), image=image)
    assert image.topics["u"].partitions[0].last_known_elr == ()


def test_kept_as_they_are() -> None:
    """What this version does not act on yet must survive it."""
    scram = m.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"e", iterations=8
    )
    acl = m.AccessControlEntryRecord(id=ID, resource_type=2, resource_name="t", principal="User:a", host="*")
    token = m.DelegationTokenRecord(owner="User:a", token_id="t1")
    entity = [
        m.EntityData(entity_type="user", entity_name="a"),
        m.EntityData(entity_type="client-id", entity_name=None),
    ]
    quota = m.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0)
    controller = m.RegisterControllerRecord(controller_id=3, incarnation_id=ID)
    producer_ids = m.ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=2000)
    zookeeper = m.ZkMigrationStateRecord(zk_migration_state=1)
    image = replayed(*BASE, scram, acl, token, quota, controller, producer_ids, zookeeper, m.NoOpRecord())
    again = replayed(*(record for record, _ in image_records(image)))
    assert again == image
    assert again.quotas == {(("client-id", None), ("user", "a")): {"producer_byte_rate": 5.0}}
    access = again.access
    assert (access.scram[("u", 1)], access.acls[ID], access.delegation_tokens["t1"]) == (scram, acl, token)
    removed = [
        m.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        m.RemoveAccessControlEntryRecord(id=ID),
        m.RemoveDelegationTokenRecord(token_id="t1"),
        m.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
    ]
    replayed(*removed, image=again)
    assert (list(access.records()), again.quotas) == ([], {})


@pytest.mark.parametrize(
    "record",
    [
        m.PartitionRecord(partition_id=0, topic_id=b"?" * 16),
        m.PartitionChangeRecord(partition_id=5, topic_id=ID),
        m.RemoveTopicRecord(topic_id=b"?" * 16),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=99, fenced=1),
        m.UnregisterBrokerRecord(broker_id=2, broker_epoch=7),
        m.RemoveAccessControlEntryRecord(id=b"?" * 16),
        m.RemoveUserScramCredentialRecord(name="?"),
        m.ClearElrRecord(topic_name="?"),
        m.EndTransactionRecord(),
        m.AbortTransactionRecord(),
        m.TopicRecord(name="t", topic_id=b"2" * 16),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_cannot_follow_are_refused(record: Any) -> None:
    image = replayed(*BASE)
    with pytest.raises(ReplayError):
        image.replay(record, 99)


def test_transactions_take_effect_whole_or_not_at_all() -> None:
    image = replayed(*BASE)
    topic = m.TopicRecord(name="in", topic_id=b"i" * 16)
    replayed(m.BeginTransactionRecord(name="x"), topic, image=image)
    assert "in" not in image.topics
    replayed(m.AbortTransactionRecord(), image=image)
    assert "in" not in image.topics
    replayed(m.BeginTransactionRecord(), topic, m.EndTransactionRecord(), image=image)
    assert "in" in image.topics
    replayed(m.BeginTransactionRecord(), image=image)
    with pytest.raises(ReplayError):
        image.replay(m.BeginTransactionRecord(), 99)


def test_a_frozen_image_does_not_move() -> None:
    image = replayed(*BASE)
    frozen = image.freeze()
    assert frozen == image
    replayed(
        m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[2]),
        m.ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"),
        m.TopicRecord(name="a.b", topic_id=b"n" * 16),
        image=image,
    )
    assert frozen == replayed(*BASE)
    assert frozen != image


def test_a_delta_names_what_changed() -> None:
    image = replayed(*BASE)
    before = image.freeze()
    image.delta = ImageDelta()
    replayed(
        m.TopicRecord(name="n", topic_id=b"n" * 16),
        m.PartitionRecord(partition_id=0, topic_id=b"n" * 16, replicas=[1], isr=[1], leader=1, directories=[ID]),
        m.TopicRecord(name="short", topic_id=b"s" * 16),
        m.RemoveTopicRecord(topic_id=b"s" * 16),
        m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]),
        m.ConfigRecord(resource_type=4, resource_name="", name="a", value="b"),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1),
        image=image,
    )
    delta = image.delta
    assert delta.new_topics == {b"n" * 16}
    assert delta.partitions == {b"n" * 16: {0: None}, ID: {0: None}}
    assert [topic.name for topic in delta.deleted_topics.values()] == ["short"]
    assert list(delta.configs) == [(4, "")]
    assert list(delta.brokers) == [1]
    image.delta = None
    computed = difference(before, image)
    assert (computed.new_topics, computed.partitions) == (delta.new_topics, {ID: {0: None}, b"n" * 16: {0: None}})
    assert not difference(image, image.freeze())


# -- bytes


def test_a_record_is_frame_type_version_message() -> None:
    data = encode_record(m.FeatureLevelRecord(name="x", feature_level=3), 0)
    assert data == bytes([1, 12, 0, 2]) + b"x" + bytes([0, 3, 0])
    assert decode_record(data) == (m.FeatureLevelRecord(name="x", feature_level=3), 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x0c",
        b"\x00\x0c\x00",
        b"\x02\x0c\x00",
        b"\x01\x06\x00",
        b"\x01\x0c\x00\x02x\x00\x03\x00!",
        b"\xff" * 9,
    ],
)
def test_malformed_records_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(data)


def test_a_corrupt_batch_stops_the_replay() -> None:
    batch = metadata_batch([(m.NoOpRecord(), 0)], base_offset=5, epoch=2, timestamp_ms=9)
    decoded = next(iter(decode_batches(batch)))
    assert (decoded.base_offset, decoded.last_offset, decoded.epoch, decoded.timestamp_ms) == (5, 5, 2, 9)
    batch[-1] ^= 1
    with pytest.raises(ProtocolError):
        list(decode_batches(batch))


# -- any history

names = st.sampled_from(["a", "b.c", "b_d", "e"])
ids = st.binary(min_size=16, max_size=16)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Records a controller could have written, in an order in which it could have written them."""
    records: list[Any] = [m.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    records.append(m.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    topics: dict[str, tuple[bytes, int]] = {}
    rng = Random(draw(st.integers(0, 1 << 30)))
    for _ in range(draw(st.integers(0, 40))):
        kind = rng.randrange(8)
        name = draw(names)
        if kind <= 1 and name not in topics:
            topic_id = rng.randbytes(16)
            count = rng.randrange(1, 4)
            topics[name] = (topic_id, count)
            records.append(m.TopicRecord(name=name, topic_id=topic_id))
            for index in rng.sample(range(count), count):
                replicas = rng.sample(range(5), rng.randrange(1, 4))
                records.append(
                    m.PartitionRecord(
                        partition_id=index,
                        topic_id=topic_id,
                        replicas=replicas,
                        isr=replicas[: rng.randrange(len(replicas) + 1)],
                        leader=rng.choice([-1, replicas[0]]),
                        leader_epoch=rng.randrange(9),
                        partition_epoch=rng.randrange(9),
                        leader_recovery_state=rng.randrange(2),
                        directories=[rng.choice([bytes(16), rng.randbytes(16)]) for _ in replicas],
                        eligible_leader_replicas=rng.choice([None, [], [4]]),
                        last_known_elr=rng.choice([None, [], [3]]),
                    )
                )
        elif kind == 2 and name in topics:
            records.append(m.RemoveTopicRecord(topic_id=topics.pop(name)[0]))
        elif kind == 3 and name in topics:
            topic_id, count = topics[name]
            records.append(
                m.PartitionChangeRecord(
                    partition_id=rng.randrange(count),
                    topic_id=topic_id,
                    isr=rng.choice([None, [], [1], [1, 2]]),
                    leader=rng.choice([-2, -1, 3]),
                    leader_recovery_state=rng.choice([-1, 0, 1]),
                    removing_replicas=rng.choice([None, [], [2]]),
                    adding_replicas=rng.choice([None, [], [3]]),
                    eligible_leader_replicas=rng.choice([None, [], [2]]),
                    last_known_elr=rng.choice([None, [], [2]]),
                )
            )
        elif kind == 4:
            value = rng.choice([None, "x", ""])
            resource = rng.choice([(2, name), (4, ""), (4, "1"), (16, "m"), (32, "g")])
            if resource[0] != 2 or name in topics:
                records.append(
                    m.ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=draw(names), value=value)
                )
        elif kind == 5:
            broker = rng.randrange(3)
            records.append(
                m.RegisterBrokerRecord(
                    broker_id=broker,
                    broker_epoch=len(records),
                    incarnation_id=rng.randbytes(16),
                    rack=rng.choice([None, "r"]),
                    fenced=rng.random() < 0.5,
                    in_controlled_shutdown=rng.random() < 0.5,
                    log_dirs=[rng.randbytes(16)],
                    cordoned_log_dirs=rng.choice([None, [], [rng.randbytes(16)]]),
                )
            )
        elif kind == 6:
            records.append(m.ProducerIdsRecord(broker_id=1, next_producer_id=1000 * len(records)))
        elif kind == 7:
            records.append(m.FeatureLevelRecord(name="share.version", feature_level=rng.randrange(2)))
    return records


@settings(max_examples=150, deadline=None)
@given(histories())
def test_a_snapshot_replays_to_the_same_image(history: list[Any]) -> None:
    image = replayed(*history)
    data = b"".join(
        snapshot_batches(image_records(image), epoch=4, last_contained_timestamp_ms=11, now_ms=12, kraft_version=0)
    )
    again = ClusterImage()
    contents = replay_snapshot(data, again, SnapshotId(image.offset + 1, 4))
    assert again == image
    assert (again.offset, again.epoch) == (image.offset, 4)
    assert (contents.last_contained_timestamp_ms, contents.kraft_version) == (11, 0)
    assert again.colliding == image.colliding
    assert not difference(image, again)


def test_a_snapshot_without_footer_is_refused() -> None:
    batches = list(snapshot_batches(iter(()), epoch=1, last_contained_timestamp_ms=0, now_ms=0, kraft_version=0))
    with pytest.raises(ValueError, match="no footer"):
        replay_snapshot(bytes(batches[0]), ClusterImage(), SnapshotId(0, 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000012-0000000003.checkpoint", SnapshotId(12, 3)),
        ("00000000000000000012-0000000003.checkpoint.deleted", None),
        ("00000000000000000012-0000000003-0.checkpoint.part", None),
        ("00000000000000000012.checkpoint", None),
        ("quorum-state", None),
    ],
)
def test_snapshot_names(name: str, expected: SnapshotId | None) -> None:
    assert SnapshotId.parse(name) == expected
    if expected is not None:
        assert expected.filename == name
