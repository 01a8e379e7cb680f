"""Listeners, who may connect, and how much all connections together may hold.

Limits follow Kafka: `max.connections.per.ip` (with overrides) refuses a connection after accept; `max.connections`, of
the broker or of one listener, and `max.connection.creation.rate` leave new ones in the kernel's backlog until there is
room; a listener between nodes is exempt from the broker-wide limit and closes somebody else's idle connection instead.
Connections without traffic for `connections.max.idle.ms` are closed, also those that do not take what they asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pylogd.broker.network.connection import Connection
from pylogd.broker.network.dispatch import Dispatcher
from pylogd.broker.network.request_memory import Memory
from pylogd.config.listeners import Endpoint
from pylogd.runtime.log_lines import Repeats, fields

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig
    from pylogd.runtime.network import Listener, Network
    from pylogd.runtime.stream import Stream

logger = logging.getLogger(__name__)

#: An idle connection gives its receive buffer back after this time.
_SHED_AFTER_S = 10.0
_SWEEP_S_MAX = 10.0


class Limits:
    """The limits in force; read again when the configuration changes."""

    __slots__ = ("_config", "connections_max", "idle_s", "per_ip_max", "per_ip_overrides", "request_bytes_max")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.load()

    def load(self) -> None:
        config = self._config
        self.request_bytes_max: int = config["socket.request.max.bytes"]
        self.connections_max: int = config["max.connections"]
        self.per_ip_max: int = config["max.connections.per.ip"]
        self.per_ip_overrides = config.max_connections_per_ip_overrides
        idle_ms: int = config["connections.max.idle.ms"]
        self.idle_s = idle_ms / 1000 if idle_ms >= 0 else float("inf")

    def per_ip(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.per_ip_max)


class BoundListener:
    """One named listener with its socket."""

    #: Set by `start`: nothing is accepted before.
    dispatcher: Dispatcher

    def __init__(self, server: Server, endpoint: Endpoint, privileged: bool) -> None:
        self.server = server
        self.name = endpoint.name
        #: Carries traffic between nodes: exempt from the limits that protect the broker from its clients, because
        #: replication must go on for the clients' own requests to be released.
        self.privileged = privileged
        self.connections = 0
        self.socket: Listener = server.network.listen(
            endpoint.host, endpoint.port, self._accepted, server.config["socket.listen.backlog.size"]
        )
        self.host = endpoint.host
        self.port = self.socket.port
        self.started = False
        self._window_s = 0.0
        self._window_count = 0
        self._rate_pause: asyncio.TimerHandle | None = None
        self.load_limits()

    def load_limits(self) -> None:
        config = self.server.config
        prefixed = f"listener.name.{self.name.lower()}.max.connections"
        self.connections_max: int = config[prefixed] if config.is_set(prefixed) else 0x7FFFFFFF
        self.rate_max: int = config.for_listener(self.name, "max.connection.creation.rate")

    @property
    def full(self) -> bool:
        server = self.server
        if self.connections >= self.connections_max:
            return True
        return not self.privileged and len(server.connections) >= server.limits.connections_max

    def start(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.started = True
        self.admit()

    def admit(self) -> None:
        """Accept if there is room, otherwise leave new connections in the backlog."""
        if not self.started or self._rate_pause is not None:
            return
        if self.full:
            self.socket.pause()
        else:
            self.socket.resume()

    def stop(self) -> None:
        self.started = False
        if self._rate_pause is not None:
            self._rate_pause.cancel()
        self.socket.close()

    def _accepted(self, stream: Stream) -> None:
        server = self.server
        host = stream.peer_host
        count = server.by_ip.get(host, 0)
        if count >= server.limits.per_ip(host):
            server.complain(
                host, logging.INFO, "rejected connection from %s: it has %d (max.connections.per.ip)", host, count
            )
            stream.close()
            return
        if self.privileged and len(server.connections) >= server.limits.connections_max:
            server.close_idlest()
        server.by_ip[host] = count + 1
        self.connections += 1
        connection = Connection(self, stream)
        server.connections[connection] = None
        stream.start(connection)
        self._count_rate()
        self.admit()

    def _count_rate(self) -> None:
        if self.rate_max >= 0x7FFFFFFF:
            return
        now = self.server.loop.time()
        if now - self._window_s >= 1.0:
            self._window_s, self._window_count = now, 0
        self._window_count += 1
        if self._window_count >= self.rate_max and self._rate_pause is None:
            self.socket.pause()
            self._rate_pause = self.server.loop.call_later(self._window_s + 1.0 - now, self._rate_over)

    def _rate_over(self) -> None:
        self._rate_pause = None
        self.admit()


class Server:
    """All listeners and connections of the node."""

    def __init__(self, network: Network, config: BrokerConfig) -> None:
        self.network = network
        self.loop = network.loop
        self.config = config
        self.limits = Limits(config)
        queued: int = config["queued.max.request.bytes"]
        self.memory = Memory(queued if queued > 0 else config["pylogd.inflight.bytes.max"])
        self.listeners: dict[str, BoundListener] = {}
        #: In the order of their arrival (a dict as an ordered set).
        self.connections: dict[Connection, None] = {}
        self.by_ip: dict[str, int] = {}
        self._complaints = Repeats(lambda: int(network.loop.time() * 1000), burst=10)
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        #: Told of every connection that has ended.
        self.connection_listeners: list[Callable[[Connection], None]] = []
        config.subscribe(self._config_changed)

    def bind(self, endpoint: Endpoint, *, privileged: bool = False) -> BoundListener:
        """Take the address, so that the port is known; nothing is accepted before `start`. OSError names it."""
        try:
            listener = BoundListener(self, endpoint, privileged)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), f"listener {endpoint}") from None
        self.listeners[endpoint.name] = listener
        return listener

    def complain(self, host: str, level: int, message: str, *values: object) -> None:
        """Log what a peer did wrong; one that repeats it costs a few lines per interval and not one each."""
        suppressed = self._complaints.allow(host)
        if suppressed is not None:
            logger.log(level, message, *values, extra=fields(suppressed=suppressed) if suppressed else None)

    def start(self, dispatcher: Dispatcher) -> None:
        """Accept on every listener that does not yet, for these APIs."""
        for listener in self.listeners.values():
            if not listener.started:
                listener.start(dispatcher)
        if self._sweep is None:
            self._schedule_sweep()

    def stop_accepting(self) -> None:
        for listener in self.listeners.values():
            listener.stop()

    def close_except(self, names: Collection[str]) -> None:
        """Stop accepting and hang up, but not on these listeners."""
        for name, listener in self.listeners.items():
            if name not in names:
                listener.stop()
        for connection in list(self.connections):
            if connection.listener_name not in names:
                connection.close()

    def close(self) -> None:
        """Stop accepting and hang up on everybody."""
        self._closed = True
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self.connections):
            connection.close()

    def forget(self, connection: Connection) -> None:
        """The connection is gone: its place is free."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        host = connection.peer_host
        left = self.by_ip[host] - 1
        if left:
            self.by_ip[host] = left
        else:
            del self.by_ip[host]
        connection.listener.connections -= 1
        for tell in self.connection_listeners:
            tell(connection)
        if not self._closed:
            for listener in self.listeners.values():
                listener.admit()

    def close_idlest(self) -> None:
        """Make room for a node of the cluster at the cost of the client that has been silent longest."""
        candidates = [c for c in self.connections if not c.listener.privileged]
        if candidates:
            idlest = min(candidates, key=lambda c: (not c.idle, c.last_active))
            idlest.close("max.connections is reached and another broker needs the place")

    def _config_changed(self, names: frozenset[str]) -> None:
        if any("max.connection" in name or name == "connections.max.idle.ms" for name in names):
            self.limits.load()
            for listener in self.listeners.values():
                listener.load_limits()
                listener.admit()

    def _schedule_sweep(self) -> None:
        delay = min(_SWEEP_S_MAX, max(self.limits.idle_s / 4, 0.01))
        self._sweep = self.loop.call_later(delay, self._sweep_idle)

    def _sweep_idle(self) -> None:
        now = self.loop.time()
        idle_s = self.limits.idle_s
        contended = self.memory.contended
        for connection in list(self.connections):
            silent_s = now - connection.last_active
            if silent_s > idle_s and connection.idle:
                logger.debug("closing idle connection to %s", connection.peer)
                connection.close()
            elif silent_s > idle_s and connection.stream.sending and now - connection.stream.taken_at > idle_s:
                connection.close("it does not read its replies (connections.max.idle.ms)")
            elif contended and connection.share.dawdles(now):
                connection.close("its request arrives too slowly for the memory it holds while others wait")
            elif silent_s > _SHED_AFTER_S:
                connection.stream.shed()
        self._schedule_sweep()
