"""A Spark session that can read and write Kafka topics, without a word about packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylogd.spark_connector.distribution import Distribution, distribution, kafka_jars
from pylogd.spark_connector.java import java_home
from pylogd.spark_connector.setup_errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_JARS = "spark.jars"


def session(
    app_name: str = "pylogd", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, started if there is none, with the stock Kafka source and sink.

    `config` takes any Spark setting and wins over what is set here. In a job that spark-submit started, the master
    and the jars are that command's. Raises SetupError with what is missing and how to get it.
    """
    spark = distribution()
    settings = dict(config or {})
    if master is not None:
        settings["spark.master"] = master
    if not _jvm_exists():
        settings = _prepared(spark, settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    _require_kafka(started, spark)
    return started


def _jvm_exists() -> bool:
    """Whether Spark's JVM was started before: by spark-submit, or by an earlier session of this process."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def _prepared(spark: Distribution, settings: dict[str, str]) -> dict[str, str]:
    spark.check_packages(settings.get("spark.jars.packages", ""))
    java = spark.java()
    # PySpark starts whatever JAVA_HOME says.
    os.environ["JAVA_HOME"] = str(java_home(java))
    jars = [str(jar) for jar in kafka_jars(spark, java)]
    if own := settings.get(_JARS):
        jars.append(own)
    defaults: dict[str, str] = {}
    if settings.get("spark.master", "local").startswith("local"):
        # A name of this machine that does not resolve, or a python3 of another version, would stop a local job.
        defaults = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Spark's 200 tasks for each step behind a shuffle are for clusters; here they cost seconds per micro-batch.
        defaults["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 1))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {**defaults, **settings, _JARS: ",".join(jars)} if jars else {**defaults, **settings}


def _require_kafka(started: SparkSession, spark: Distribution) -> None:
    """Better here than as 'Failed to find data source: kafka' in the first query."""
    from py4j.protocol import Py4JJavaError

    loader = started._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_PROVIDER)
    except Py4JJavaError:
        raise SetupError(
            f"this Spark was started without the Kafka source {spark.package}, and a running one cannot take it up: "
            "start the job with `pylogd spark submit`, or call pylogd.spark_connector.session() before any other"
        ) from None
