"""The checksum is the right one, and importing it costs little."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
from pylogd.protocol.crc import crc32c


def test_known_value_and_the_packages_own_answer() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = memoryview(bytearray(range(256)) * 5)
    assert crc32c(data[3:]) == package.crc32c(data[3:])


def test_the_packages_metadata_is_not_read_at_import() -> None:
    code = "import sys, pylogd.protocol.crc; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode in (0, _hook())


def _hook() -> int:
    """What the interpreter imports by itself."""
    return subprocess.run(
        [sys.executable, "-c", "import sys; sys.exit('importlib.metadata' in sys.modules)"], check=False
    ).returncode
