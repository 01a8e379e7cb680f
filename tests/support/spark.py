"""Spark with its stock Kafka source and sink: the connector's jars are resolved once, without Spark's own resolver.

spark-submit's resolver writes to the user's home; a list of jars from our cache needs no network when a test starts.
"""

from __future__ import annotations

from pathlib import Path

from support.jvm import java, unavailable
from support.maven import Artifact, ResolutionError, resolve

SPARK_VERSION = "4.0.0"
# Spark itself brings the rest (Scala, slf4j, codecs), so each is taken alone.
CONNECTOR = [
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, transitive=False),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION, transitive=False),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.0", transitive=False),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0", transitive=False),
]


def connector_jars() -> list[Path]:
    try:
        return resolve(f"spark-kafka-{SPARK_VERSION}", CONNECTOR, java())
    except ResolutionError as error:
        unavailable(str(error))
