"""Where the numbers lie in a request of fixed length."""

from __future__ import annotations

import struct

from pylogd.broker.network.templates import Layout, layout_of

HEADER = b"\x00\x08\x00\x08\x00\x00\x00\x05" + b"\x00\x02me"
MARK = (struct.pack(">qi", 0x1122334455667788, 0x2233445A), "qi")


def body(*numbers: tuple[int, int], text: bytes = b"text") -> bytes:
    return b"group" + b"".join(struct.pack(">qi", *each) + text for each in numbers)


def found(given: bytes, marked: bytes, count: int) -> Layout | None:
    return layout_of(memoryview(HEADER + given), len(HEADER), marked, [MARK] * count)


def test_numbers_and_what_lies_between_them() -> None:
    mark = struct.unpack(">qi", MARK[0])
    layout = found(body((1, 2), (3, 4)), body(mark, mark), 2)
    assert layout is not None
    other = memoryview(HEADER + body((70, 5), (80, 6)))
    assert layout.values(other) == (b"\x00\x02megroup", 70, 5, b"text", 80, 6, b"text")
    assert bytes(other[layout.part(0)]) == b"\x00\x02megroup"
    assert bytes(other[layout.part(1)]) == b"text"
    assert layout.values(memoryview(HEADER + body((70, 5), (80, 6), text=b"tuxt"))) is None
    assert layout.values(other[:-1]) is None
    # The correlation id may be another one; the client may not.
    assert layout.values(memoryview(HEADER[:4] + bytes(4) + HEADER[8:] + body((1, 2), (3, 4)))) is not None
    assert layout.values(memoryview(HEADER[:-1] + b"x" + body((1, 2), (3, 4)))) is None


def test_a_request_that_another_codec_wrote_has_none() -> None:
    mark = struct.unpack(">qi", MARK[0])
    assert found(body((1, 2)) + b"\x00", body(mark), 1) is None
    assert found(body((1, 2), text=b"TEXT"), body(mark), 1) is None


def test_a_text_that_looks_like_numbers_gives_none() -> None:
    mark = struct.unpack(">qi", MARK[0])
    assert found(body((1, 2), text=MARK[0]), body(mark, text=MARK[0]), 1) is None
