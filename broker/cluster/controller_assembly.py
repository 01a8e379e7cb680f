"""Puts a controller together from a node's configuration."""

from __future__ import annotations

from collections.abc import Callable

from pylogd.broker.cluster.formatting import same_place
from pylogd.config.broker import BrokerConfig
from pylogd.config.host import Host
from pylogd.config.listeners import SECURITY_PROTOCOL_IDS
from pylogd.controller.bootstrap import read_bootstrap
from pylogd.controller.config_rules import ConfigRules
from pylogd.controller.fencing_evidence import FencingSettings
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.controller.quorum.metadata_log import MetadataEnvironment, MetadataLog, MetadataLogConfig
from pylogd.controller.quorum.quorum_settings import QuorumSettings
from pylogd.controller.raft.settings import Timeouts
from pylogd.controller.service import Controller, Timings
from pylogd.controller.state import Settings
from pylogd.metadata.registrations import Endpoint
from pylogd.rpc.peer import Peer
from pylogd.runtime.network import Network

#: The core has a pause of its own after a failure; the connection adds little to it.
PEER_BACKOFF_S_MAX = 0.1


def controller_endpoints(config: BrokerConfig, default_host: str, ports: dict[str, int]) -> list[Endpoint]:
    """How others reach this controller; a listener on every interface is advertised under `default_host`. `ports` tells
    the real port of listeners that asked for any."""
    protocols = {name: SECURITY_PROTOCOL_IDS[protocol] for name, protocol in config.security_protocols.items()}
    return [
        Endpoint(e.name, e.host or default_host, e.port or ports.get(e.name, 0), protocols[e.name])
        for e in config.advertised_controller_listeners
    ]


def broker_endpoints(config: BrokerConfig, default_host: str, ports: dict[str, int] | None = None) -> list[Endpoint]:
    """How clients reach this broker: what is advertised, or else where it listens. `ports` tells the real port of
    listeners that asked for any."""
    protocols = config.security_protocols
    known = config.advertised_listeners
    found = []
    for e in known if known is not None else config.broker_listeners:
        port = e.port or (ports or {}).get(e.name, 0)
        host = default_host if e.host in ("", "0.0.0.0", "::") else e.host
        found.append(Endpoint(e.name, host, port, SECURITY_PROTOCOL_IDS[protocols[e.name]]))
    return found


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    internal = config.get("internal.metadata.log.segment.bytes")
    return MetadataLogConfig(
        segment_bytes=internal or config["metadata.log.segment.bytes"],
        segment_ms=config["metadata.log.segment.ms"],
        max_retention_bytes=config["metadata.max.retention.bytes"],
        max_retention_ms=config["metadata.max.retention.ms"],
        snapshot_interval_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
        snapshot_interval_ms=config["metadata.log.max.snapshot.interval.ms"],
    )


def _auto_join(config: BrokerConfig) -> bool:
    """A controller that is listed where others look for the quorum is meant to vote, unless somebody says no."""
    name = "controller.quorum.auto.join.enable"
    if config.is_set(name):
        return bool(config[name])
    mine = config.advertised_controller_listeners
    return any(same_place(endpoint, host, port) for host, port in config.bootstrap_servers for endpoint in mine)


def quorum_settings(config: BrokerConfig, cluster_id: str) -> QuorumSettings:
    names = config.controller_listener_names
    return QuorumSettings(
        cluster_id=cluster_id,
        listener=names[0] if names else "CONTROLLER",
        voters=config.voters,
        bootstrap=config.bootstrap_servers,
        can_vote=config.is_controller,
        auto_join=_auto_join(config),
        timeouts=Timeouts(
            election_ms=config["controller.quorum.election.timeout.ms"],
            fetch_ms=config["controller.quorum.fetch.timeout.ms"],
            election_backoff_ms_max=config["controller.quorum.election.backoff.max.ms"],
            request_ms=config["controller.quorum.request.timeout.ms"],
            retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
        ),
        fetch_bytes_max=config["controller.quorum.fetch.max.bytes"],
        fetch_snapshot_bytes_max=config["controller.quorum.fetch.snapshot.max.bytes"],
    )


def fencing_settings(
    config: BrokerConfig, network: Network, own_incarnation_id: Callable[[], bytes | None]
) -> FencingSettings:
    """A controller without a broker knows how brokers reach each other only if it is told."""
    knows_listener = config.is_broker or config.is_set("inter.broker.listener.name")
    return FencingSettings(
        network.connect,
        inter_broker_listener=config.inter_broker_listener_name if knows_listener else None,
        own_incarnation_id=own_incarnation_id,
    )


def build_driver(
    host: Host,
    *,
    cluster_id: str,
    directory_id: bytes,
    endpoints: list[Endpoint],
    on_failure: Callable[[BaseException], None],
) -> QuorumDriver:
    """This node's part in the quorum: voter or observer, by its role and by what the log says."""
    config = host.config
    environment = MetadataEnvironment(host.files, host.clock, host.loop, host.workers, on_failure)
    client_id = f"raft-client-{config.node_id}"

    def connect(address: str, port: int) -> Peer:
        return Peer(host.network, address, port, client_id=client_id, backoff_s_max=PEER_BACKOFF_S_MAX)

    return QuorumDriver(
        MetadataLog(environment, config.metadata_log_dir, metadata_log_config(config)),
        node_id=config.node_id,
        directory_id=directory_id,
        endpoints=endpoints,
        clock=host.clock,
        loop=host.loop,
        workers=host.workers,
        on_failure=on_failure,
        quorum=quorum_settings(config, cluster_id),
        connect=connect,
        rng=host.chance,
    )


def build_controller(
    host: Host,
    *,
    cluster_id: str,
    directory_id: bytes,
    endpoints: list[Endpoint],
    new_uuid: Callable[[], bytes],
    on_failure: Callable[[BaseException], None],
    own_incarnation_id: Callable[[], bytes | None],
) -> Controller:
    """The controller of this node on its metadata directory, which must be formatted. `await controller.start()` makes
    it active; `on_failure` is told when its disk failed and it cannot go on. `own_incarnation_id` is that of the broker
    in this process."""
    config = host.config
    driver = build_driver(
        host, cluster_id=cluster_id, directory_id=directory_id, endpoints=endpoints, on_failure=on_failure
    )
    settings = Settings(
        config.node_id,
        cluster_id,
        num_partitions=config["num.partitions"],
        replication_factor=config["default.replication.factor"],
        delete_topic_enable=config["delete.topic.enable"],
        static_min_insync_replicas=config["min.insync.replicas"],
    )
    balance = config["leader.imbalance.check.interval.seconds"] if config["auto.leader.rebalance.enable"] else 0
    timings = Timings(
        idle_interval_ms=config["metadata.max.idle.interval.ms"],
        session_timeout_ms=config["broker.session.timeout.ms"],
        balance_interval_ms=balance * 1000 or None,
    )
    return Controller(
        driver,
        settings,
        ConfigRules(config),
        bootstrap=read_bootstrap(host.files, config.metadata_log_dir),
        endpoints=endpoints,
        clock=host.clock,
        loop=host.loop,
        rng=host.chance,
        new_uuid=new_uuid,
        timings=timings,
        local_broker=config.is_broker,
        fencing=fencing_settings(config, host.network, own_incarnation_id),
    )
