"""What the codecs promise beyond round trips: versions, nulls, limits, zero copy, and classes that stay cheap."""

from __future__ import annotations

import copy
import subprocess
import sys
import traceback

import pytest
from pylogd.protocol.codec import decode, encode, encoder
from pylogd.protocol.codegen.functions import source
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.headers import RequestHeader
from pylogd.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from pylogd.protocol.messages.group_records import ConsumerGroupMemberMetadataValue
from pylogd.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from pylogd.protocol.messages.offset_fetch import OffsetFetchRequest
from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(records: object) -> ProduceRequest:
    partition = PartitionProduceData(index=7, records=records)
    return ProduceRequest(acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def test_bytes_of_a_produce_request() -> None:
    assert encode(produce(b"abc"), 3).hex(" ") == (
        "ff ff ff ff 00 00 00 05 00 00 00 01 00 01 74 00 00 00 01 00 00 00 07 00 00 00 03 61 62 63"
    )
    assert encode(produce(b"abc"), 9).hex(" ") == "00 ff ff 00 00 00 05 02 02 74 02 00 00 00 07 04 61 62 63 00 00 00"


def test_client_id_in_the_header_is_never_compact() -> None:
    assert encode(RequestHeader(18, 3, 1, "x"), 2).hex(" ") == "00 12 00 03 00 00 00 01 00 01 78 00"


def test_records_are_slices_of_the_input() -> None:
    frame = bytearray(encode(produce(b"abc"), 9))
    request, _ = decode(ProduceRequest, 9, memoryview(frame))
    records = request.topic_data[0].partition_data[0].records
    assert records == b"abc"
    records[0] = ord("z")
    assert b"zbc" in frame


class Range:
    """Stands for a piece of a log file."""

    def __init__(self, size: int) -> None:
        self.size = size


def test_file_ranges_leave_their_length_and_their_place() -> None:
    for version in (3, 9):
        data, part = bytes(300), Range(300)
        whole = encode(produce(data), version)
        buf, splits = bytearray(), []
        encoder(ProduceRequest, version)(produce(part), buf, splits)
        [(position, placed)] = splits
        assert placed is part
        assert bytes(buf[:position]) + data + bytes(buf[position:]) == whole


def test_big_records_are_not_copied_into_chunks() -> None:
    big, small = memoryview(bytes(100_000)), b"small"
    buf, splits = bytearray(), []
    encoder(ProduceRequest, 9)(produce(big), buf, splits)
    assert splits[0][1] is big
    assert len(buf) < 100
    splits.clear()
    encoder(ProduceRequest, 9)(produce(small), buf, splits)
    assert not splits


def test_file_range_needs_chunks() -> None:
    with pytest.raises(TypeError):
        encode(produce(Range(3)), 9)


def test_version_without_the_field_drops_it_only_if_ignorable() -> None:
    topic = TopicProduceData(name="t", topic_id=b"i" * 16)
    assert encode(ProduceRequest(topic_data=[topic]), 12) == encode(
        ProduceRequest(topic_data=[TopicProduceData(name="t")]), 12
    )
    with pytest.raises(KafkaError, match="group_id") as caught:
        encode(OffsetFetchRequest(group_id="g"), 8)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    with pytest.raises(KafkaError, match="diverging_epoch"):
        encode(response, 11)


def test_versions_we_do_not_have() -> None:
    for version in (2, 14, -1):
        with pytest.raises(KafkaError) as caught:
            encode(ProduceRequest(), version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            decode(ProduceRequest, version, b"")


def test_null_where_the_version_forbids_it() -> None:
    everything = MetadataRequest(topics=None)
    assert decode(MetadataRequest, 1, encode(everything, 1))[0] == everything
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics must not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match=r"TopicProduceData\.name must not be null"):
        decode(ProduceRequest, 9, bytes.fromhex("00 ffff 00000005 02 00 01 00 00"))


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (3, "ffff ffff 00000005 7fffffff", "topic_data claims 2147483647"),
        (9, "00 ffff 00000005 ffffffff07", "topic_data claims 2147483646"),
        (9, "00 ffff 00000005 ffffffff0f", "31 bits"),
        (9, "00 ffff 00000005 ffffffffff01", "five bytes"),
        (9, "03 ff", "transactional_id claims 2"),
        (9, "03 ff fe ffff 00000005 01 00", "UTF-8"),
        (9, "00 ffff 00000005 02 02 74 02 00000007 ffffffff07", "records claims"),
        (9, "00 ffff 00000005 01 ff ff ff ff 07", "too early"),
        (9, "00 ffff 00000005 01 01 00 7f", "too early"),
        (3, "ffff ffff 00000005 00000002 0000 00000000", "topic_data claims 2"),
    ],
)
def test_hostile_lengths(version: int, data: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode(ProduceRequest, version, bytes.fromhex(data))


def test_unknown_tags_are_skipped() -> None:
    plain = encode(FetchRequest(), 18)
    assert plain[-1] == 0
    known = FetchRequest(cluster_id="c")
    tagged = plain[:-1] + bytes.fromhex("03 00 02 02 63 7e 01 ff ff01 03 010203")
    assert decode(FetchRequest, 18, tagged) == (known, len(tagged))


def test_tag_whose_size_is_wrong() -> None:
    plain = encode(FetchRequest(), 18)
    with pytest.raises(ProtocolError, match="cluster_id does not fill"):
        decode(FetchRequest, 18, plain[:-1] + bytes.fromhex("01 00 03 02 63 00"))


def test_null_is_not_the_default_of_a_nullable_tagged_struct() -> None:
    """A classic member's metadata is a nullable tagged struct whose default is not null: null must be written."""
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode(member, 0))[0] == member
    assert encode(member, 0).endswith(bytes.fromhex("01 00 01 00"))


def test_string_longer_than_the_wire_allows() -> None:
    too_long = "x" * 32768
    with pytest.raises(ValueError, match="32767"):
        encode(ProduceRequest(transactional_id=too_long), 9)
    with pytest.raises(ProtocolError, match="32767"):
        decode(ProduceRequest, 9, bytes.fromhex("818002") + too_long.encode() + bytes(20))


def test_objects_are_values_with_their_own_lists() -> None:
    one, two = MetadataResponseTopic(), MetadataResponseTopic()
    assert one == two
    one.partitions.append("x")
    assert two.partitions == []
    assert one != two
    assert one != ProduceRequest()
    assert MetadataResponseTopic(3, "n").name == "n"
    assert repr(PartitionProduceData(index=1)) == "PartitionProduceData(index=1, records=None)"
    with pytest.raises(TypeError):
        PartitionProduceData(indx=1)
    with pytest.raises(AttributeError):
        one.nonsense = 1
    assert copy.deepcopy(one) == one


def test_shared_default_structs_cannot_be_changed() -> None:
    partition = PartitionData()
    assert partition.current_leader == LeaderIdAndEpoch()
    with pytest.raises(AttributeError, match="shared default"):
        partition.current_leader.leader_id = 1
    decoded, _ = decode(
        FetchResponse, 16, encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 16)
    )
    assert decoded.responses[0].partitions[0].diverging_epoch == EpochEndOffset()
    copied = copy.deepcopy(partition)
    assert copied == partition
    copied.current_leader.leader_id = 1
    assert copied != partition


def test_generated_source_can_be_read_and_shows_in_tracebacks() -> None:
    assert "def decode(view, pos=0):" in source(ProduceRequest, 9)
    try:
        encode(ProduceRequest(acks="one"), 9)
    except Exception:
        assert "msg.acks" in traceback.format_exc()
    else:
        pytest.fail("a string is no int16")


def test_importing_the_api_table_loads_no_message() -> None:
    script = (
        "import sys, pylogd.protocol.framing as f\n"
        "assert not [m for m in sys.modules if m.startswith('pylogd.protocol.messages.')]\n"
        "from pylogd.protocol.api import request_class\n"
        "assert request_class(0).__name__ == 'ProduceRequest'\n"
        "loaded = [m for m in sys.modules if m.startswith('pylogd.protocol.messages.')]\n"
        "assert loaded == ['pylogd.protocol.messages.produce'], loaded\n"
        "assert 'dataclasses' not in sys.modules and 'inspect' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
