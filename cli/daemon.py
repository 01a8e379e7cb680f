"""The life of the process around a node: event loop, signals, banner, exit code.

The first SIGTERM, SIGINT or SIGHUP starts a clean shutdown (flush, checkpoint, clean-shutdown marker); the second one
ends the process at once, and the next start recovers as after a crash.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from pylogd.broker.cluster.formatting import FormatError
from pylogd.config.broker import BrokerConfig
from pylogd.runtime import log_lines
from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.runtime.loop import run
from pylogd.runtime.system import raise_descriptor_limit

if TYPE_CHECKING:
    from pylogd.broker.node import Node

logger = logging.getLogger("pylogd")


def serve(config: BrokerConfig, warnings: list[str], version: str) -> int:
    """Run a node until a signal; returns the exit code."""
    raise_descriptor_limit()
    for warning in warnings:
        logger.warning("%s", warning)
    return run(lambda loop: _run(loop, config, version))


async def _run(loop: asyncio.AbstractEventLoop, config: BrokerConfig, version: str) -> int:
    from pylogd.broker.node import Node

    stop = asyncio.Event()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            logger.warning("second signal: stopping at once; the next start will recover")
            sys.stderr.flush()
            os._exit(128 + number)
        logger.info("shutting down", extra=log_lines.fields(signal=signal.Signals(number).name))
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, on_signal, number)
    node = Node(config)
    starting = loop.create_task(node.start())
    stopping = loop.create_task(stop.wait())
    ends = (stopping, node.failure)
    await asyncio.wait((starting, *ends), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        failure = starting.exception()
        if failure is not None:
            return await _failed(node, failure)
        logger.info("%s", banner(config, node, version))
        # What start-up allocated stays; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Requests that wait make objects by the thousand, none of them garbage: look less often.
        gc.set_threshold(10_000, 20, 20)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    else:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    try:
        await node.stop()
    except Exception:
        logger.exception("unclean shutdown")
        return 1
    logger.info("stopped")
    return 1 if node.failure.done() else 0


async def _failed(node: Node, failure: BaseException) -> int:
    """A start that failed: one line for what a user can cause, a traceback for what only we can."""
    from pylogd.controller.raft.log_view import LogFull
    from pylogd.storage.directories.directory import DirectoryInUse, DuplicatePartition, NoDirectory

    if isinstance(failure, FormatError | DirectoryInUse | DuplicatePartition | NoDirectory | LogFull):
        message = str(failure)
    elif isinstance(failure, OSError) and failure.errno in DISK_FULL_ERRORS:
        places = ", ".join(sorted({*node.config.log_dirs, node.config.metadata_log_dir}))
        message = f"no space left on the disk of a log directory ({places}): make room and start again"
    elif isinstance(failure, OSError):
        name = f"{failure.filename}: " if failure.filename else ""
        message = f"{name}{failure.strerror or failure}"
    else:
        logger.error("cannot start: unexpected failure", exc_info=failure)
        message = ""
    if message:
        logger.error("cannot start: %s", message)
    try:
        await node.stop()
    except Exception as error:
        logger.warning("clean-up after the failed start: %s", error)
    return 1


def banner(config: BrokerConfig, node: Node, version: str) -> str:
    """One line that tells what runs where."""
    listeners = ",".join(map(str, node.endpoints))
    directories = ",".join(os.path.abspath(path) for path in config.log_dirs)
    return (
        f"pylogd {version} ready: node {config.node_id} ({'+'.join(config.roles)}), "
        f"listeners {listeners}, data {directories}, started in {_age_ms()} ms"
    )


def _age_ms() -> int:
    """Milliseconds since the process began, interpreter start included where the kernel tells."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        return int((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000)
    except (OSError, AttributeError, ValueError):
        return int(time.process_time() * 1000)
