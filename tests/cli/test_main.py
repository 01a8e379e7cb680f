"""The command line: exit codes, one-line errors, formatting, and a node's life from banner to clean stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pylogd import __version__
from pylogd.broker.cluster import meta_properties
from pylogd.cli import main as command
from pylogd.config.docs import reference
from support.broker import Pylogd
from support.pause import pause
from support.ports import free_ports
from support.wait import eventually


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.run(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"pylogd {__version__}\n"


def test_the_reference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["config-docs"]) == 0
    assert capsys.readouterr().out == reference()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "absent.toml"], "pylogd: absent.toml: No such file or directory\n"),
        (["--set", "node.id=x"], "--set: Invalid value x for configuration node.id: Not a number of type INT"),
        (["--set", "log.dir.x=1"], "--set: unknown configuration log.dir.x; did you mean log.dir?"),
        (["--log-level", "LOUD"], "--log-level LOUD: expected one of TRACE, DEBUG"),
        (["--config", "bad.toml"], "bad.toml:2: unknown configuration log.segment.byte; did you mean"),
        (["format", "--set", "process.roles=x"], "process.roles"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_2(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (here / "bad.toml").write_text('"node.id" = 1\n"log.segment.byte" = 5\n')
    assert command.run(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_unknown_option_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.run(["--frobnicate"])
    assert exit_.value.code == 2


def test_format_by_hand(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "node.properties").write_text("broker.id=3\nlog.dirs=one,two\n")
    arguments = ["format", "--config", "node.properties", "--cluster-id", "abc"]
    assert command.run(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        "formatted one for node 3 of cluster abc",
        "formatted two for node 3 of cluster abc",
    ]
    meta = meta_properties.parse((here / "one" / "meta.properties").read_text())
    assert (meta.cluster_id, meta.node_id) == ("abc", 3)

    assert command.run(arguments) == 1
    assert "already formatted" in capsys.readouterr().err
    assert command.run([*arguments, "--ignore-formatted"]) == 0
    assert "already formatted" in capsys.readouterr().out
    other = ["format", "--config", "node.properties", "--cluster-id", "xyz", "--ignore-formatted"]
    assert command.run(other) == 1
    assert "belongs to cluster abc, not to xyz" in capsys.readouterr().err


def test_options_may_stand_before_the_command(here: Path) -> None:
    assert command.run(["--set", "log.dirs=before", "format"]) == 0
    assert (here / "before" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("options", "snapshot"),
    [
        ([], True),
        (["--standalone"], True),
        (["--initial-controllers", "1@h:9093:AAECAwQFBgcICQoLDA0ODw"], True),
        (["--no-initial-controllers"], False),
        (["--set", "controller.quorum.voters=1@127.0.0.1:9093"], False),
    ],
)
def test_the_kind_of_quorum_is_chosen_when_formatting(here: Path, options: list[str], snapshot: bool) -> None:
    assert command.run(["format", "--set", "log.dirs=data", *options]) == 0
    assert (here / "data" / "__cluster_metadata-0").exists() is snapshot


def test_a_static_quorum_has_no_initial_controllers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voters = "controller.quorum.voters=1@127.0.0.1:9093"
    assert command.run(["format", "--set", voters, "--standalone"]) == 1
    assert "the quorum is static" in capsys.readouterr().err


def test_the_installed_command_exits_with_the_code(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pylogd.cli.main", "--set", "nope=1"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "pylogd: --set: unknown configuration nope\n"


# -- a node as a process


def test_a_node_says_when_it_is_ready_and_stops_cleanly(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd()
    # Requests are answered a moment before the line is written.
    [banner] = eventually(lambda: [line for line in node.log_text().splitlines() if " ready: " in line])
    assert f"pylogd {__version__} ready: node 1 (broker+controller)" in banner
    assert f"PLAINTEXT://127.0.0.1:{node.port}" in banner
    assert str(node.data) in banner
    assert not (node.data / ".kafka_cleanshutdown").exists()
    assert node.terminate() == 0
    assert (node.data / ".kafka_cleanshutdown").exists()


def test_a_second_signal_ends_it_at_once(new_pylogd: Callable[..., Pylogd]) -> None:
    controller = new_pylogd()
    [port] = free_ports(1)
    node = new_pylogd(
        {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller.controller_port}",
        },
        node_id=2,
    )
    assert controller.process is not None
    assert node.process is not None
    eventually(lambda: " ready: node 2" in node.log_text())
    # A clean shutdown asks the controller first, and this one does not answer.
    pause(controller.process.pid)
    try:
        node.process.send_signal(signal.SIGTERM)
        eventually(lambda: "shutting down" in node.log_text())
        node.process.send_signal(signal.SIGINT)
        assert node.process.wait(30) == 128 + signal.SIGINT
    finally:
        controller.process.send_signal(signal.SIGCONT)
    assert not (node.data / ".kafka_cleanshutdown").exists()


def start_and_fail(node: Pylogd, changes: dict[str, str]) -> str:
    """Start a second process beside the node and return its only log line."""
    text = node.write_properties().read_text() + "".join(f"{key}={value}\n" for key, value in changes.items())
    path = node.directory / "second.properties"
    path.write_text(text)
    command_line = [*node.command()[:-1], str(path)]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=60, cwd=node.directory)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert " ERROR pylogd cannot start: " in line
    return line


def test_starts_that_cannot_succeed_say_why_in_one_line(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd()
    ports = free_ports(2)
    elsewhere = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[1]}",
    }
    assert f"log directory {node.data} is locked by a running broker" in start_and_fail(node, elsewhere)
    other = {"log.dirs": str(node.directory / "other")}
    assert f":{node.controller_port}: Address already in use" in start_and_fail(node, other)
    assert "belongs to node 1, but node.id is 2" in start_and_fail(node, {**elsewhere, "node.id": "2"})
    (node.directory / "file").write_text("")
    blocked = {**elsewhere, "log.dirs": str(node.directory / "file" / "below")}
    assert "file" in start_and_fail(node, blocked)
    node.stop()


def test_log_lines_can_be_json(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd({"pylogd.logging.format": "json"})
    node.stop()
    lines = [json.loads(line) for line in node.log_text().splitlines()]
    assert any("ready" in line["message"] for line in lines)
    assert {"signal": "SIGTERM"}.items() <= next(line for line in lines if line["message"] == "shutting down").items()


def test_a_node_started_twice_is_the_same_node(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd()
    meta = (node.data / "meta.properties").read_text()
    node.restart()
    assert (node.data / "meta.properties").read_text() == meta
    node.stop()
