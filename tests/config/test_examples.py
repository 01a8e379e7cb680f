"""The configuration files in docker/ are ones that pylogd accepts, those of the compose file included."""

from __future__ import annotations

from pathlib import Path

import pytest
from pylogd.config.load import load

DOCKER = Path(__file__).parents[2] / "docker"


def _load(path: Path, overrides: list[str]) -> object:
    return load(str(path), path.read_text(), overrides, environ={}, read=lambda name: Path(name).read_text())


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*.toml")), ids=lambda path: path.name)
def test_example_files(path: Path) -> None:
    loaded = _load(path, [])
    assert not loaded.warnings


def test_the_compose_file() -> None:
    """Every service adds its own settings to the image's file."""
    services = (DOCKER / "compose.yaml").read_text().split("  pylogd")[1:]
    nodes = set()
    for service in services:
        overrides = [line.split("--set=", 1)[1] for line in service.splitlines() if "--set=" in line]
        if overrides:
            loaded = _load(DOCKER / "broker.toml", overrides)
            assert not loaded.warnings
            nodes.add(loaded.config.node_id)
    assert nodes == {1, 2, 3}
