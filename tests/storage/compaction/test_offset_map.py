from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.storage.compaction.offset_map import SLOT_BYTES, OffsetMap


@given(puts=st.lists(st.tuples(st.binary(max_size=6), st.integers(0, 1 << 60)), max_size=60))
def test_it_is_a_dictionary(puts: list[tuple[bytes, int]]) -> None:
    model = dict(puts)
    offsets = OffsetMap(SLOT_BYTES * (len(model) + 1))  # as full as it may be
    for key, offset in puts:
        offsets.put(key, offset)
        assert offsets.latest_offset == offset
    assert offsets.entries == len(model)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.get(b"a key that nobody put") == -1


def test_a_full_map_refuses_new_keys_but_takes_known_ones() -> None:
    offsets = OffsetMap(SLOT_BYTES * 4)
    for n in range(3):
        offsets.put(b"%d" % n, n)
    with pytest.raises(ValueError, match="full"):
        offsets.put(b"one more", 9)
    offsets.put(b"1", 10)
    assert [offsets.get(b"%d" % n) for n in range(3)] == [0, 10, 2]
