from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from pylogd import spark_connector as connector
from pylogd.spark_connector.cache import OVERRIDE
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import unavailable
from support.loaded_cluster import SETTINGS, LoadedCluster
from support.paths import CACHE
from support.spark import Kafka
from support.target import TARGET


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One Spark for all tests: a start costs seconds."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "768m",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    os.environ[OVERRIDE] = str(CACHE)
    try:
        # Spark leaves a folder `artifacts` where it is started.
        with contextlib.chdir(tmp_path_factory.mktemp("spark")):
            session = connector.session("pylogd tests", master="local[2]", config=settings)
    except connector.SetupError as error:
        unavailable(str(error))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def admin(broker: Daemon) -> Admin:
    return Admin(broker.bootstrap)


#: Retention and compaction come at once.
QUICK = {
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedCluster]:
    if TARGET != "pylogd":
        pytest.skip("the cluster of these tests is pylogd's")
    made = LoadedCluster(tmp_path_factory.mktemp("cluster"), 3, {**SETTINGS, **QUICK})
    made.start()
    yield made
    for node in made.nodes.values():
        # With the majority goes the controller that would let the last one leave in good order.
        node.assert_alive()
        node.assert_log_clean()
        node.kill()


@pytest.fixture(scope="session")
def one(broker: Daemon) -> Kafka:
    return Kafka(broker.bootstrap, 1)


@pytest.fixture(scope="session")
def three(cluster: LoadedCluster) -> Kafka:
    return Kafka(cluster.bootstrap, 3)


@pytest.fixture(params=["one", "three"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    found: Kafka = request.getfixturevalue(request.param)
    return found
