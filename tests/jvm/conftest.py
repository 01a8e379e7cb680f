from __future__ import annotations

import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import ToolHost
from support.tools import Tools


@pytest.fixture(scope="session")
def kafka_tools(tools: ToolHost, broker: Daemon) -> Tools:
    """Kafka's tools, pointed at the shared broker."""
    return Tools(tools, broker.bootstrap)


@pytest.fixture(scope="session")
def admin(broker: Daemon) -> Admin:
    return Admin(broker.bootstrap)
