from __future__ import annotations

import pytest
from support.admin import Admin
from support.clients import CLIENTS, Client
from support.daemon import Daemon


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each of the client libraries in turn."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def admin(broker: Daemon) -> Admin:
    return Admin(broker.bootstrap)
