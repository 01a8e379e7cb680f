"""The checkout itself: what is packaged, what is committed, and what the documents point at."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from support.paths import CHECKOUT
from support.sources import PACKAGES


def settings() -> dict:  # type: ignore[type-arg]
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def committed() -> list[Path]:
    """Files that git knows or would add; a checkout without git has only what was released."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    return [name for name in names if (CHECKOUT / name).is_file()]


def test_every_package_is_listed() -> None:
    """A folder with code that the list forgets is missing from the wheel and from nowhere else."""
    wanted = set()
    for folder in PACKAGES:
        for path in (CHECKOUT / folder).rglob("*.py"):
            inner = path.parent.relative_to(CHECKOUT).parts
            if "__pycache__" not in inner:
                wanted.add(".".join(("pylogd", *inner)).replace("pylogd.api", "pylogd"))
    assert set(settings()["tool"]["setuptools"]["packages"]) == wanted


def test_every_package_says_what_it_is() -> None:
    for name in settings()["tool"]["setuptools"]["packages"]:
        parts = name.split(".")[1:]
        folder = Path(*parts) if parts and parts[0] in PACKAGES else Path("api", *parts)
        assert (CHECKOUT / folder / "__init__.py").exists(), name


def test_wheel_holds_every_module() -> None:
    """The folder mapping, seen from the installed side: the wheel venv of `make lint` has each module once."""
    found = sorted((CHECKOUT / ".venvs" / "wheel" / "lib").glob("python*/site-packages/pylogd"))
    stamp = CHECKOUT / ".venvs" / "wheel" / ".current"
    sources = [path for folder in PACKAGES for path in (CHECKOUT / folder).rglob("*.py")]
    if not found or not stamp.exists() or stamp.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        pytest.skip("`make lint` makes the wheel's venv and brings it up to date")
    installed = {p.relative_to(found[0]).as_posix() for p in found[0].rglob("*.py")}
    assert installed == {path.relative_to(CHECKOUT).as_posix().removeprefix("api/") for path in sources}


def test_no_folder_shadows_the_package() -> None:
    assert not (CHECKOUT / "pylogd").exists()
    assert not (CHECKOUT / "pylogd.py").exists()


TEXT = {".py", ".md", ".toml", ".java", ".properties", ".yml", ".yaml", ".cfg", ".txt", ".sh", ".json", ""}
# Paths that exist on one machine only.
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|Users|work|opt/[a-z]+)/[\w.-]+")


def test_nothing_of_this_machine_is_committed() -> None:
    found = [
        f"{name}: {match[0]}"
        for name in committed()
        if name.suffix in TEXT and name != Path("tests/test_tree.py")
        for match in MACHINE.finditer((CHECKOUT / name).read_text(errors="replace"))
    ]
    assert not found


def test_nothing_generated_or_large_is_committed() -> None:
    unwanted = {".jar", ".class", ".pyc", ".so", ".whl", ".log", ".index", ".timeindex"}
    assert not [name for name in committed() if name.suffix in unwanted]
    assert not [name for name in committed() if (CHECKOUT / name).stat().st_size > 500_000]


LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def test_documents_point_at_files_that_exist() -> None:
    broken = []
    for name in committed():
        if name.suffix == ".md":
            for target in LINK.findall((CHECKOUT / name).read_text()):
                if "://" not in target and not (CHECKOUT / name.parent / target).exists():
                    broken.append(f"{name}: {target}")
    assert not broken


def test_every_source_file_opens_with_its_reason() -> None:
    """STYLE: a file says in its first lines why it exists."""
    silent = []
    for name in committed():
        if name.parts[0] in PACKAGES and name.suffix == ".py":
            text = (CHECKOUT / name).read_text()
            if text.strip() and not text.startswith('"""'):
                silent.append(str(name))
    assert not silent
