"""The broker's standing with the controller: registration, heartbeats, unfencing, controlled shutdown.

A broker registers with an incarnation id of its own and gets an epoch. It is fenced until its heartbeats say that it
has replayed the metadata up to its registration and wants in. Heartbeats keep the session; when the epoch is refused,
the broker registers anew. To leave in good order it asks to shut down, and goes on until the controller has moved its
leaderships and lets it go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pylogd.metadata import feature_levels
from pylogd.metadata.registrations import Endpoint
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.broker.cluster.publisher import MetadataPublisher
    from pylogd.config.host import Host
    from pylogd.controller.quorum.driver import QuorumDriver
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.protocol.messages.broker_registration import BrokerRegistrationRequest
    from pylogd.rpc.controller_channel import Channel
    from pylogd.storage.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

REGISTRATION_RETRY_SECONDS = 0.1
REGISTRATION_RETRY_SECONDS_MAX = 2.0
SHUTDOWN_RETRY_SECONDS = 0.005

_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_REGISTER_ANEW = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


async def register_controller(
    channel: Channel, controller_id: int, incarnation_id: bytes, endpoints: Sequence[Endpoint]
) -> None:
    """Puts a controller's endpoints and features into the metadata. Clusters before 3.7-IV0 have no place for them."""
    from pylogd.protocol.messages import controller_registration as m

    request = m.ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        listeners=[
            m.Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints
        ],
        features=[
            m.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
        ],
    )
    while True:
        response = await channel.send(request)
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return
        if code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
            raise KafkaError(code, response.error_message)
        logger.info("controller %d waits for an active controller to register with", controller_id)


class BrokerLifecycle:
    """This broker's registration, and a listener for metadata."""

    def __init__(
        self,
        host: Host,
        cluster_id: str,
        *,
        channel: Channel,
        quorum: QuorumDriver,
        publisher: MetadataPublisher,
        logs: LogManager,
        incarnation_id: bytes,
        endpoints: Sequence[Endpoint],
        previous_epoch: int = -1,
    ) -> None:
        self._host = host
        self._cluster_id = cluster_id
        self._channel = channel
        self._quorum = quorum
        self._publisher = publisher
        self._logs = logs
        self.incarnation_id = incarnation_id
        self._endpoints = list(endpoints)
        self._previous_epoch = previous_epoch
        self.epoch = -1
        self.fenced = True
        self._ready = False
        self._stopping = False
        self._offline_directories: list[bytes] = []
        self._wake: asyncio.Event = asyncio.Event()
        self._unfenced: asyncio.Future[None] = host.loop.create_future()
        self._released: asyncio.Future[None] = host.loop.create_future()
        self._task: asyncio.Task[None] | None = None

    def current_epoch(self) -> int:
        """Another one after each registration."""
        return self.epoch

    # -- joining

    async def register(self) -> int:
        """Registers, as often as it takes; returns the epoch. KafkaError when trying again cannot help."""
        delay = REGISTRATION_RETRY_SECONDS
        waited = 0.0
        limit = self._host.config["initial.broker.registration.timeout.ms"] / 1000
        while True:
            response = await self._channel.send(self._registration())
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self.epoch = response.broker_epoch
                logger.info("broker %d is registered with epoch %d", self._host.broker_id, self.epoch)
                return self.epoch
            if code in _FATAL or waited >= limit:
                raise KafkaError(code, f"broker {self._host.broker_id} cannot register: {code.name} ({code.message})")
            logger.warning("broker %d cannot register yet: %s", self._host.broker_id, code.name)
            await asyncio.sleep(delay)
            waited += delay
            delay = min(delay * 2, REGISTRATION_RETRY_SECONDS_MAX)

    def _registration(self) -> BrokerRegistrationRequest:
        from pylogd.protocol.messages import broker_registration as m

        return m.BrokerRegistrationRequest(
            broker_id=self._host.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                m.Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._endpoints
            ],
            features=[
                m.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
            ],
            rack=self._host.config["broker.rack"],
            log_dirs=sorted(d.id for d in self._logs.directories if d.online and d.id is not None),
            previous_broker_epoch=self._previous_epoch,
        )

    async def unfence(self) -> None:
        """Says that this broker is ready, keeps saying it is alive from now on, and returns when it is unfenced."""
        self._ready = True
        if self._task is None:
            self._task = self._host.loop.create_task(self._run())
        self._wake.set()
        await self._unfenced

    def directory_failed(self, directory_id: bytes) -> None:
        """Reports a failed log directory without waiting for the next heartbeat."""
        if directory_id not in self._offline_directories:
            self._offline_directories.append(directory_id)
            self._wake.set()

    def config_changed(self) -> None:
        """Cordoned directories travel with heartbeats: send one now."""
        self._wake.set()

    def controller_changed(self) -> None:
        """A new active controller notices the end of this process by the connection of its heartbeats: make one."""
        self._wake.set()

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """A broker that wants to stop waits until everybody has seen its leaderships move: say so at once."""
        for broker_id in delta.brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.in_controlled_shutdown and broker_id != self._host.broker_id:
                self._wake.set()

    # -- heartbeats

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            interval = self._host.config["broker.heartbeat.interval.ms"] / 1000
            try:
                again = await self._heartbeat()
            except KafkaError as error:
                logger.error("heartbeat failed: %s", error)
                again = False
            if self._released.done():
                return
            if again:
                continue
            try:
                await asyncio.wait_for(self._wake.wait(), interval)
            except TimeoutError:
                continue

    async def _heartbeat(self) -> bool:
        """One heartbeat; True when the next should follow at once."""
        from pylogd.protocol.messages import broker_heartbeat as m

        ids = {directory.path: directory.id for directory in self._logs.directories}
        cordoned = [id_ for path in self._host.config.cordoned_log_dirs if (id_ := ids.get(path)) is not None]
        request = m.BrokerHeartbeatRequest(
            broker_id=self._host.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._publisher.offset,
            want_fence=not self._ready,
            want_shut_down=self._stopping,
            offline_log_dirs=list(self._offline_directories),
            cordoned_log_dirs=cordoned,
        )
        response = await self._channel.send(request)
        code = ErrorCode(response.error_code)
        if code in _REGISTER_ANEW:
            logger.warning("the controller does not know broker epoch %d (%s): registering anew", self.epoch, code.name)
            await self.register()
            await self._publisher.reached(self.epoch)
            return True
        if code is not ErrorCode.NONE:
            logger.warning("heartbeat refused: %s", code.name)
            return False
        was_fenced, self.fenced = self.fenced, response.is_fenced
        if not self.fenced and not self._unfenced.done():
            self._unfenced.set_result(None)
        if response.should_shut_down:
            if not self._released.done():
                self._released.set_result(None)
            return False
        if self.fenced and not was_fenced and not self._stopping:
            logger.warning("broker %d was fenced by the controller", self._host.broker_id)
        if self._stopping:
            # Leaderships are on their way to other brokers: give them a moment, then ask again.
            await asyncio.sleep(SHUTDOWN_RETRY_SECONDS)
            return True
        return bool(self._ready and self.fenced and response.is_caught_up)

    # -- leaving

    async def controlled_shutdown(self, timeout_seconds: float) -> bool:
        """Gives leaderships away and leaves; False when the controller did not let go in time, or there is none."""
        if self._task is None or self.fenced:
            return True
        self._stopping = True
        self._wake.set()
        quorum = self._quorum
        deadline = self._host.loop.time() + timeout_seconds
        while not self._released.done():
            left = deadline - self._host.loop.time()
            if left <= 0 or quorum.majority_is_down:
                reason = "did not release it in time" if left <= 0 else "is gone: most of the quorum is down"
                logger.warning("broker %d stops on its own: the controller %s", self._host.broker_id, reason)
                return False
            await asyncio.wait([self._released, quorum.changed()], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def stop(self) -> None:
        """No more heartbeats."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
