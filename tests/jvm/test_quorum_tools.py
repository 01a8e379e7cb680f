"""Kafka's metadata-quorum tool against three pylogd controllers: it describes them, takes one out and puts it back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cluster import PylogdCluster
from support.jvm import ToolHost
from support.tools import Tools
from support.wait import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.pylogd_only]


def test_controllers_leave_and_join_at_an_operators_word(tools: ToolHost, tmp_path: Path) -> None:
    cluster = PylogdCluster(tmp_path).start()
    try:
        run = Tools(tools, cluster.bootstrap).run
        status = run("metadata-quorum", "describe", "--status")
        leader = cluster.active_controller()
        assert re.search(rf"LeaderId:\s+{leader}\b", status)
        for node in cluster.nodes.values():
            assert f"CONTROLLER://127.0.0.1:{node.controller_port}" in status

        # One that is down is taken out through a broker, and does not come back by itself when it is told not to.
        gone = cluster.nodes[1 + leader % 3]
        gone.stop()
        directory_id = re.search(r"directory\.id=(.*)", (gone.data / "meta.properties").read_text())
        assert directory_id is not None
        target = ["--controller-id", str(gone.node_id), "--controller-directory-id", directory_id[1]]
        removed = run("metadata-quorum", "remove-controller", *target)
        assert f"Removed  KRaft controller {gone.node_id}" in removed
        again = Tools(tools, cluster.bootstrap).try_("metadata-quorum", "remove-controller", *target)
        assert "VoterNotFoundException" in again.stdout + again.stderr
        gone.extra["controller.quorum.auto.join.enable"] = "false"
        gone.start()
        assert gone.node_id not in cluster.voters()

        properties = gone.directory / "server.properties"
        added = eventually(
            lambda: (
                Tools(tools, cluster.bootstrap)
                .try_("metadata-quorum", "--command-config", str(properties), "add-controller")
                .stdout
            ).startswith("Added controller")
        )
        assert added
        eventually(lambda: cluster.voters() == {1, 2, 3})
        replication = run("metadata-quorum", "describe", "--replication")
        assert sorted(re.findall(r"(Leader|Follower|Observer)\s*$", replication, re.M)) == [
            "Follower",
            "Follower",
            "Leader",
        ]
        cluster.stop()
    finally:
        cluster.kill()
