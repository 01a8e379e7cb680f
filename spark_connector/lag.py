"""Lag that operators can see: the progress of streaming queries, published as the offsets of consumer groups.

Spark keeps its offsets in checkpoints and commits none, so that kafka-consumer-groups knows nothing of a query. Here
each query gets a group of its own name without members, and after every micro-batch the offsets it has read up to:

    from pylogd.spark_connector.lag import publish_lag

    with publish_lag(spark, "localhost:9092"):
        query = frame.writeStream.queryName("orders").option("checkpointLocation", ...).start()
        query.awaitTermination()

    $ kafka-consumer-groups.sh --bootstrap-server localhost:9092 --describe --group spark-orders

Nobody reads these offsets back: the checkpoint alone decides where a query goes on. A broker that does not answer
costs a line in the log and a later try, never the query.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata
from pyspark.sql.streaming import StreamingQueryListener

logger = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], int]

PREFIX = "spark-"
RETRY_S = 5.0
# A broker forgets the offsets of a group nobody commits to (offsets.retention.minutes, a week by default), and a query
# without new data has no progress to report.
REFRESH_S = 3600.0
CLOSE_S = 15.0
_LAST_TRIES_S = 0.2


def publish_lag(
    spark: Any, bootstrap_servers: str, *, group: Callable[[str], str] = lambda query: PREFIX + query, **client: Any
) -> LagListener:
    """Starts publishing for every query of the session, also those that run already; `close()` ends it.

    `group` makes the group's name from the query's name (or its id, which its checkpoint keeps, if it has none).
    `client` are settings of kafka-python, such as security_protocol.
    """
    listener = LagListener(spark, OffsetPublisher(bootstrap_servers, **client), group)
    spark.streams.addListener(listener)
    return listener


def offsets_of(sources: Iterable[Any]) -> Offsets:
    """Where a query will read on, from the sources in its progress report; other sources than Kafka have none."""
    found: Offsets = {}
    for source in sources:
        if not source.description.startswith("Kafka") or not source.endOffset:
            continue
        for topic, partitions in json.loads(source.endOffset).items():
            for partition, offset in partitions.items():
                # A topic that a query reads twice is as far as the slower reader.
                where = (topic, int(partition))
                found[where] = min(offset, found.get(where, offset))
    return found


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Spark calls it from its own threads, one event at a time; nothing here waits for a broker."""

    def __init__(self, spark: Any, publisher: OffsetPublisher, group: Callable[[str], str]) -> None:
        self._streams = spark.streams
        self._publisher = publisher
        self._group = group
        self._groups: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        self._groups[str(event.id)] = self._group(event.name or str(event.id))

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        try:
            offsets = offsets_of(progress.sources)
            if offsets:
                query = str(progress.id)
                group = self._groups.setdefault(query, self._group(progress.name or query))
                self._publisher.put(group, offsets)
        except Exception:
            # Whatever a source may report one day: it is no reason to disturb Spark's event queue.
            logger.exception("the progress of query %s could not be published", progress.id)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        group = self._groups.pop(str(event.id), None)
        if group is not None:
            self._publisher.forget(group)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Publishes what is known of queries that ended, and stops listening. Waits no longer than the limit."""
        deadline = time.monotonic() + timeout_s
        # Spark delivers a query's last report some time after the query has ended.
        while self._ended() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._streams.removeListener(self)
        self._publisher.close(max(0.0, deadline - time.monotonic()))

    def _ended(self) -> set[str]:
        return set(self._groups) - {str(query.id) for query in self._streams.active}

    def __enter__(self) -> LagListener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class OffsetPublisher:
    """A thread that commits the newest offsets of each group, and tries again when it could not."""

    def __init__(self, bootstrap_servers: str, **client: Any) -> None:
        self._settings = {"bootstrap_servers": bootstrap_servers.split(","), "client_id": "pylogd-spark-lag", **client}
        self._admin: KafkaAdminClient | None = None
        self._changed = threading.Condition()
        self._waiting: dict[str, Offsets] = {}
        self._live: dict[str, Offsets] = {}
        self._complaints: dict[str, tuple[str, int]] = {}
        self._closing = False
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="pylogd-spark-lag", daemon=True)
        self._thread.start()

    def put(self, group: str, offsets: Offsets) -> None:
        """Publishes offsets, unless newer ones of the group come first."""
        with self._changed:
            self._live[group] = self._waiting[group] = offsets
            self._changed.notify()

    def forget(self, group: str) -> None:
        """The query ended: what is left of it is still published, and then its group grows old."""
        with self._changed:
            self._live.pop(group, None)

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._closing = True
            self._deadline = time.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        refresh_at = time.monotonic() + REFRESH_S
        while True:
            with self._changed:
                while not self._waiting and not self._closing and (left := refresh_at - time.monotonic()) > 0:
                    self._changed.wait(left)
                work, self._waiting = self._waiting, {}
                closing = self._closing
                if time.monotonic() >= refresh_at:
                    work = self._live | work
                    refresh_at = time.monotonic() + REFRESH_S
            failed = {group: offsets for group, offsets in work.items() if not self._committed(group, offsets)}
            if closing and (not failed or time.monotonic() >= self._deadline):
                break
            if failed:
                time.sleep(_LAST_TRIES_S) if closing else self._pause(RETRY_S)
                with self._changed:
                    self._waiting = failed | self._waiting
        if self._admin is not None:
            self._admin.close()

    def _pause(self, seconds: float) -> None:
        """New offsets do not end it: a broker that does not answer is left alone for a while."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._closing and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def _committed(self, group: str, offsets: Offsets) -> bool:
        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(**self._settings)
            wanted = {TopicPartition(*where): OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()}
            answers = self._admin.alter_group_offsets(group, wanted)
        except Exception as error:
            # The client's errors are of many kinds, sockets' and its own, and none may end this thread.
            self._complain(group, repr(error))
            return False
        refused = {where: answer.__name__ for where, answer in answers.items() if answer is not NoError}
        if refused:
            self._complain(group, str(refused))
        else:
            self._complaints.pop(group, None)
        return not refused

    def _complain(self, group: str, text: str) -> None:
        """When the second try fails for the same reason, for a coordinator may be on its way; and only then, for a try
        every few seconds would fill the log."""
        before, count = self._complaints.get(group, ("", 0))
        count = count + 1 if before == text else 1
        self._complaints[group] = (text, count)
        if count == 2:
            logger.warning("the offsets of group %s could not be committed, trying again: %s", group, text)
