"""Topics that are created on first use: those that a client asked about (`auto.create.topics.enable`), and the internal
topics of the coordinators.

The request goes to the controller and nobody waits for it: the client is told that the topic is unknown, asks again,
and finds it. A topic that is being created is not asked for twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from pylogd.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylogd.protocol.errors import ErrorCode
from pylogd.rpc.caller import Caller

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.protocol.messages.create_topics import CreatableTopic
    from pylogd.rpc.controller_channel import Channel

logger = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """How an internal topic is created: the settings that give its partitions and replicas, configs of its own, and
    configs whose values are settings of the broker."""

    partitions: str
    replicas: str
    configs: dict[str, str]
    from_broker: dict[str, str]


_INTERNAL: Final[dict[str, InternalTopic]] = {
    OFFSETS_TOPIC: InternalTopic(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        {"segment.bytes": "offsets.topic.segment.bytes"},
    ),
    TRANSACTIONS_TOPIC: InternalTopic(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"},
        {
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
}


class TopicCreation:
    """The creations under way on this broker."""

    def __init__(self, host: Host, channel: Channel) -> None:
        self._host = host
        self._channel = channel
        self._inflight: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: list[str], caller: Caller | None) -> None:
        """Asks for topics with valid names that do not exist, for a client or, without one, for this broker itself."""
        wanted = [name for name in names if name not in self._inflight]
        if not wanted:
            return
        self._inflight.update(wanted)
        task = self._host.loop.create_task(self._create(wanted, caller))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, names: list[str], caller: Caller | None) -> None:
        from pylogd.protocol.messages import create_topics as m

        request = m.CreateTopicsRequest(
            topics=[self._topic(name) for name in names], timeout_ms=self._host.config["request.timeout.ms"]
        )
        try:
            channel = self._channel
            if caller is None:
                response = await channel.send(request)
            else:
                response = await channel.forward(request, request.VERSIONS[1], caller)
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning(
                        "auto-creation of topic %s failed with %s: %s",
                        topic.name,
                        ErrorCode(topic.error_code).name,
                        topic.error_message,
                    )
        finally:
            self._inflight.difference_update(names)

    def _topic(self, name: str) -> CreatableTopic:
        from pylogd.protocol.messages import create_topics as m

        config = self._host.config
        internal = _INTERNAL.get(name)
        if internal is not None:
            configs = {**internal.configs, **{key: str(config[name]) for key, name in internal.from_broker.items()}}
            return m.CreatableTopic(
                name=name,
                num_partitions=config[internal.partitions],
                replication_factor=config[internal.replicas],
                configs=[m.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
        # What is not configured here is left to the controller's defaults.
        partitions = config["num.partitions"] if "num.partitions" in config.static else -1
        replicas = config["default.replication.factor"] if "default.replication.factor" in config.static else -1
        return m.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
