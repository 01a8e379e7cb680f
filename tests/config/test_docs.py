"""The reference page in the repository is the one the registry makes."""

from __future__ import annotations

from pylogd.config.broker import BROKER_KEYS
from pylogd.config.docs import reference
from pylogd.config.load import load
from support.paths import CHECKOUT


def test_the_committed_page_is_current() -> None:
    committed = (CHECKOUT / "docs" / "configuration.md").read_text()
    assert committed == reference(), "run `pylogd config-docs > docs/configuration.md`"


def test_every_public_key_is_on_the_page() -> None:
    page = reference()
    missing = [key.name for key in BROKER_KEYS.values() if not key.internal and f"| `{key.name}`" not in page]
    assert missing == []


def test_the_example_on_the_page_works() -> None:
    example = reference().split("```toml\n")[1].split("```")[0]
    config = load("example.toml", example).config
    assert config.log_dirs == ["/data/a", "/data/b"]
    assert config.security_protocols["CONTROLLER"] == "PLAINTEXT"
