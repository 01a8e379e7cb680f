"""A real Apache Kafka, one combined node: the oracle that our behaviour and our files are held against."""

from __future__ import annotations

import base64
import subprocess
import uuid

from support.daemon import Daemon
from support.jvm import tool_command


class ApacheKafka(Daemon):
    name = "kafka"
    # The JVM ends with 128 + SIGTERM after its shutdown hooks, also when all went well.
    clean_exit_codes = (0, 143, -15)

    def prepare(self) -> None:
        """Formats an empty directory; one that holds a cluster already is opened as it is."""
        properties = self.write_properties()
        if (self.data / "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        args = ["format", f"--cluster-id={cluster_id}", "-c", str(properties), "--standalone"]  # an id may start with -
        done = subprocess.run(
            tool_command("kafka.tools.StorageTool", *args), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self) -> list[str]:
        heap = ("-Xms256m", "-Xmx512m", "-Djava.awt.headless=true")
        return tool_command("kafka.Kafka", str(self.directory / "server.properties"), options=heap)
