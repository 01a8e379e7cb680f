"""kafka-python's own integration tests pass: the client's authors check what their users rely on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.daemon import HOST, Daemon
from support.kafka_python import run, unpack
from support.ports import free_ports

LEFT_OUT = {
    "test_admin_integration.py::test_create_describe_delete_acls": "needs access control",
    "test_sasl_integration.py": "needs SASL",
    "test_ssl_integration.py": "needs TLS",
}
# For brokers older than 0.10.1.
SKIPPED = {"test_consumer_integration.py::test_kafka_consumer_offsets_for_time_old"}
COUNT = 55


def properties() -> dict[str, str]:
    """What their own brokers are configured with, as far as their tests see it."""
    port, controller_port = free_ports(2)
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "num.partitions": "4",
        "group.min.session.timeout.ms": "100",
    }


def test_integration_tests_of_kafka_python(new_broker: Callable[..., Daemon], tmp_path: Path) -> None:
    broker = new_broker(properties(), node_id=0)
    outcomes, output = run(unpack(tmp_path), broker.bootstrap, list(LEFT_OUT))
    failed = sorted(name for name, outcome in outcomes.items() if outcome != "passed" and name not in SKIPPED)
    assert not failed, f"{failed}\n{output[-20000:]}"
    assert len(outcomes) == COUNT, sorted(outcomes)
