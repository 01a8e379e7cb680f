from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pylogd import spark_connector as connector
from pylogd.spark_connector.cache import OVERRIDE
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import unavailable
from support.paths import CACHE


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
        session = connector.session("pylogd tests", master="local[2]", config=settings)
    except connector.SetupError as error:
        unavailable(str(error))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def admin(broker: Daemon) -> Admin:
    return Admin(broker.bootstrap)
