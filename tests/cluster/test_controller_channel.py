"""A broker talks to a controller in another process, pylogd's or Kafka's: requests of its own and of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import create_topics, describe_cluster
from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pylogd.rpc.caller import Caller
from pylogd.rpc.controller_channel import RoutedChannel
from pylogd.runtime.network import Network
from pylogd.runtime.workers import Workers
from support.broker import Pylogd
from support.daemon import Daemon
from support.kafka import ApacheKafka
from support.ports import free_ports

CLIENT = Caller(client_id="a-client", host="127.0.0.1", listener="PLAINTEXT")


@pytest.fixture(scope="module", params=[Pylogd, pytest.param(ApacheKafka, marks=pytest.mark.jvm)])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made: Daemon = request.param(tmp_path_factory.mktemp("controller"))
    made.start()
    yield made
    made.stop()


async def ask(addresses: list[int], work: Any, timeout_s: float = 20.0) -> Any:
    loop = asyncio.get_running_loop()
    workers = Workers(loop, threads_max=1)
    network = Network(loop, workers)
    channel = RoutedChannel(
        network,
        find=lambda: None,
        bootstrap=[("127.0.0.1", port) for port in addresses],
        client_id="broker-9",
        timeout_s=timeout_s,
    )
    try:
        return await work(channel)
    finally:
        channel.close()
        network.close()
        workers.close()


def test_a_clients_request_is_forwarded_in_an_envelope(daemon: Daemon) -> None:
    request = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name="by-envelope", num_partitions=3, replication_factor=1)],
        timeout_ms=10_000,
    )

    async def work(channel: RoutedChannel) -> Any:
        first = await channel.forward(request, 7, CLIENT, 7)
        again = await channel.forward(request, 5, CLIENT, 7)
        return first.topics[0], again.topics[0]

    created, refused = asyncio.run(ask([daemon.controller_port], work))
    assert (created.error_code, created.num_partitions) == (0, 3)
    assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_brokers_own_request_names_its_error(daemon: Daemon) -> None:
    request = BrokerHeartbeatRequest(broker_id=77, broker_epoch=5)
    response = asyncio.run(ask([daemon.controller_port], lambda channel: channel.send(request)))
    assert response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


def test_an_address_where_nobody_listens_is_passed_over(daemon: Daemon) -> None:
    (nobody,) = free_ports(1)
    request = describe_cluster.DescribeClusterRequest(endpoint_type=2)
    response = asyncio.run(ask([nobody, daemon.controller_port], lambda channel: channel.send(request)))
    assert (response.error_code, response.controller_id) == (0, daemon.node_id)


def test_no_controller_is_an_error_in_the_response(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)
    response = asyncio.run(ask([nobody], lambda channel: channel.send(request), timeout_s=0.3))
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
