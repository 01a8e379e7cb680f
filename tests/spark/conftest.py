from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import java, unavailable
from support.spark import connector_jars


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One Spark for all tests: a start costs seconds."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        unavailable("needs PySpark (pip install '.[spark]')")
    jars = connector_jars()
    # PySpark starts whatever JAVA_HOME says; let it be the Java we found.
    os.environ["JAVA_HOME"] = os.path.dirname(os.path.dirname(os.path.realpath(java())))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pylogd tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def admin(broker: Daemon) -> Admin:
    return Admin(broker.bootstrap)
