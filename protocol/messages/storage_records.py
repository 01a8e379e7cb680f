"""The `.snapshot` files of producer state: an int16 version, then this message.

`crc` is the CRC-32C of everything behind it.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32, Int64, UInt32


class ProducerSnapshot(Message, versions=(1, 1)):
    crc: UInt32 = 0
    producer_entries: list[ProducerEntry] = []


class ProducerEntry(Struct):
    producer_id: Int64 = 0
    epoch: Int16 = 0
    last_sequence: Int32 = 0
    last_offset: Int64 = 0
    offset_delta: Int32 = 0
    timestamp: Int64 = 0
    coordinator_epoch: Int32 = 0
    current_txn_first_offset: Int64 = 0
