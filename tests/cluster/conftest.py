from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.loaded_cluster import SETTINGS, LoadedCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedCluster]:
    made = LoadedCluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS)
    made.start()
    yield made
    for node in made.nodes.values():
        # With the majority goes the controller that would let the last one leave in good order.
        node.assert_alive()
        node.assert_log_clean()
        node.kill()
