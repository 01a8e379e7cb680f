"""The Spark that PySpark will start, and the Kafka package that belongs to exactly that one.

Spark ships its Kafka source apart from itself, and so it does its Avro functions, for values of topics are often Avro.
The jars must have Spark's own version and Scala's, or they fail deep in a query with a missing method; what Spark's
jars folder already holds must not come a second time in another version.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from pylogd.spark_connector.java import HIGHEST, LOWEST, find_java
from pylogd.spark_connector.maven import Artifact, ResolutionError, resolve
from pylogd.spark_connector.setup_errors import SetupError

# The version starts at the last hyphen before a digit: log4j-1.2-api-2.24.3, guava-33.4.0-jre.
_JAR = re.compile(r"(?P<name>.+)-(?P<version>\d[^/]*)\.jar")
_CORE = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<version>.+)\.jar")
_SOURCE, _AVRO = "spark-sql-kafka-0-10", "spark-avro"


@dataclass(frozen=True)
class Distribution:
    """A Spark on this machine: where it is, its version and Scala's, and the names of its jars without versions."""

    home: Path
    version: str
    scala: str
    modules: tuple[str, ...]

    @property
    def package(self) -> Artifact:
        """The Kafka source, without what Spark has already."""
        return self._module(_SOURCE)

    @property
    def missing(self) -> list[Artifact]:
        """What has to be added to this Spark: the Kafka source and the Avro functions."""
        return [each for each in (self.package, self._module(_AVRO)) if each.name not in self.modules]

    def _module(self, name: str) -> Artifact:
        return Artifact("org.apache.spark", f"{name}_{self.scala}", self.version, self.modules)

    def check_packages(self, packages: str) -> None:
        """Refuses a Kafka source of another version that the user asks for (spark.jars.packages)."""
        for wanted in filter(None, (each.strip() for each in packages.split(","))):
            if f":{_SOURCE}_" in wanted and wanted != str(self.package):
                raise SetupError(
                    f"the package {wanted} does not fit Spark {self.version} with Scala {self.scala}: "
                    f"leave it out, {self.package} is taken"
                )

    def java(self) -> Path:
        """The `java` it can run on; SetupError if there is none."""
        major, minor = (int(part) for part in self.version.split(".")[:2])
        return find_java(LOWEST, HIGHEST if (major, minor) < (4, 1) else None)


def distribution() -> Distribution:
    """The Spark of $SPARK_HOME, else the one inside the installed PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise SetupError("PySpark is not installed: pip install 'pylogd[spark]'")
    import pyspark
    from pyspark.find_spark_home import _find_spark_home

    found = read_distribution(Path(_find_spark_home()))
    if found.version != pyspark.__version__:
        raise SetupError(
            f"PySpark {pyspark.__version__} would start Spark {found.version} in {found.home}: "
            f"unset SPARK_HOME, or pip install 'pyspark=={found.version}'"
        )
    return found


def read_distribution(home: Path) -> Distribution:
    """What a Spark folder holds; SetupError if it is none."""
    names = sorted(path.name for path in (home / "jars").glob("*.jar"))
    core = next(filter(None, map(_CORE.fullmatch, names)), None)
    if core is None:
        raise SetupError(f"{home} is no Spark: its jars folder has no spark-core jar (is SPARK_HOME right?)")
    modules = tuple(dict.fromkeys(match["name"] for match in map(_JAR.fullmatch, names) if match))
    return Distribution(home, core["version"], core["scala"], modules)


def kafka_jars(spark: Distribution, java: Path, cache: Path | None = None) -> list[Path]:
    """The jars of the Kafka source and of Avro; the first call downloads them, every later one reads the cache."""
    missing = spark.missing
    if not missing:
        return []
    try:
        return resolve(f"spark-kafka-{spark.version}", missing, java, cache=cache, copy=True)
    except ResolutionError as error:
        names = " and ".join(map(str, missing))
        raise SetupError(
            f"Spark {spark.version} needs the package {names} for Kafka, and it could not be downloaded "
            f"(once; it is kept afterwards). Check the connection, or Maven's settings if you use a mirror.\n{error}"
        ) from None
