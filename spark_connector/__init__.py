"""PySpark over the stock Kafka source and sink: a session that has them, and what Spark users need around them.

    from pylogd.spark_connector import session
    spark = session("my job")

docs/spark.md is the newcomer's page. What else is here: `pipelines` (declared jobs), `lag` (the progress of queries as
consumer groups), `audit` (the files of data directories, checked on a Spark cluster).

Importing this package costs nothing: PySpark is imported by the first call that needs it.
"""

from pylogd.spark_connector.sessions import session
from pylogd.spark_connector.setup_errors import SetupError

__all__ = ["SetupError", "session"]
