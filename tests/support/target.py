"""What the behaviour tests run against: pylogd, or Apache Kafka with PYLOGD_TEST_TARGET=kafka."""

from __future__ import annotations

import os

from support.broker import Pylogd
from support.daemon import Daemon
from support.kafka import ApacheKafka

TARGET = os.environ.get("PYLOGD_TEST_TARGET", "pylogd")
TARGETS: dict[str, type[Daemon]] = {"pylogd": Pylogd, "kafka": ApacheKafka}
