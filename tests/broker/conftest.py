from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.datanode import DataNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNode]:
    made = DataNode(tmp_path)
    yield made
    made.close()
