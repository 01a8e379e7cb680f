"""What is written about the code is true: every file, function and module that a document or a comment names exists.

Names stand between backticks: a file or folder (`storage/log/reading.py`, `broker/gate/`), a definition in a file
(`storage/log/reading.py: Reading.read`), or a module (`pylogd.storage.log.reading`). The code is parsed, not imported.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/flows.md"]
FLOWS = 7
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(r"^[\w.-]+(?:/[\w.-]+)*/?$")
FILE_NAME = re.compile(r"^[\w/]+\.py$")
DEFINITION = re.compile(r"^([\w./-]+\.py): ([A-Za-z_][\w.]*)$")
MODULE = re.compile(r"^pylogd(?:\.[a-z_][a-z0-9_]*)+(?:\.[A-Z]\w*)?$")
#: A step of a flow: its number, and then where it happens.
STEP = re.compile(r"^\d+\. ", re.MULTILINE)
STEP_WITH_PLACE = re.compile(r"^\d+\. `[\w./-]+\.py: [A-Za-z_][\w.]*`", re.MULTILINE)
#: A row of the table of moves: the old name, the new one.
MOVE = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
#: A row of the table of names that left their file: the names, the old file, the new one.
NAMES_MOVED = re.compile(r"^\| (`[^|]+`) \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
TOP_LEVEL = {path.name for path in CHECKOUT.iterdir()}
PACKAGES = sorted(path.parent.name for path in CHECKOUT.glob("*/__init__.py") if path.parent.name != "bench")


@cache
def text_of(name: str) -> str:
    """A document without its examples of commands and its drawings."""
    return FENCE.sub("", (CHECKOUT / name).read_text())


@cache
def definitions(path: Path) -> frozenset[str]:
    """Functions, classes and constants of a module, and the members of its classes as Class.member."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        for name in _names(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found |= {f"{name}.{member}" for inner in node.body for member in _names(inner)}
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def is_module(name: str) -> bool:
    """Configuration keys of our own begin like modules."""
    return MODULE.match(name) is not None and name.split(".")[1] in TOP_LEVEL


def module_exists(name: str) -> bool:
    """`pylogd.a.b` is a/b.py or the package a/b/; the last part may be a class or function of a module."""
    parts = name.split(".")[1:]
    place = CHECKOUT.joinpath(*parts)
    if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
        return True
    if (CHECKOUT / "api" / f"{'/'.join(parts)}.py").is_file():
        return True
    modules = (place.parent.with_suffix(".py"), place.parent / "__init__.py")
    return any(parts[-1] in definitions(module) for module in modules if module.is_file())


def problem(span: str) -> str | None:
    """What is wrong with the text between two backticks; None when nothing is, or when it names no code."""
    defined = DEFINITION.match(span)
    if defined is not None:
        path = CHECKOUT / defined[1]
        if not path.is_file():
            return f"{span}: no such file"
        return None if defined[2] in definitions(path) else f"{span}: no such definition"
    if is_module(span):
        return None if module_exists(span) else f"{span}: no such module"
    if PLACE.match(span) and ("/" in span or span.endswith(".py")):
        if span.split("/")[0] not in TOP_LEVEL and not span.endswith(".py"):
            return None
        return None if (CHECKOUT / span).exists() else f"{span}: no such file or folder"
    return None


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_named_exists(document: str) -> None:
    found = [wrong for span in CODE.findall(text_of(document)) if (wrong := problem(span)) is not None]
    assert not found


def test_the_check_sees_what_is_missing() -> None:
    assert problem("broker/node.py: Node.start") is None
    assert problem("pylogd.broker.node") is None
    assert problem("pylogd.logging.level") is None
    assert problem("broker/node.py: Node.begin")
    assert problem("broker/nodes.py: Node")
    assert problem("pylogd.broker.nodes")
    assert problem("storage/cellar/")


def test_every_step_of_a_flow_names_its_place() -> None:
    flows = text_of("docs/flows.md").split("\n## ")[1:]
    assert len(flows) == FLOWS
    for flow in flows:
        steps, placed = STEP.findall(flow), STEP_WITH_PLACE.findall(flow)
        assert steps, flow.splitlines()[0]
        assert len(steps) == len(placed), flow.splitlines()[0]


def test_comments_name_what_exists() -> None:
    """A comment may leave out the beginning of a path: `raft/output.py`."""
    sources = [path for folder in PACKAGES for path in (CHECKOUT / folder).rglob("*.py")]
    parts = [path.relative_to(CHECKOUT).parts for path in sources]
    known = {"/".join(path[start:]) for path in parts for start in range(len(path))}
    found = []
    for path in sources:
        for span in CODE.findall(path.read_text()):
            if (FILE_NAME.match(span) and span not in known) or (is_module(span) and not module_exists(span)):
                found.append(f"{path.relative_to(CHECKOUT)}: {span}")
    assert not found


def test_moves_lead_to_modules_that_exist() -> None:
    moves = MOVE.findall(text_of("CHANGELOG.md"))
    assert moves
    lost = [new for _, new in moves if not (CHECKOUT / new).exists()]
    still_there = [old for old, _ in moves if (CHECKOUT / old).exists()]
    assert not lost
    assert not still_there


def test_names_that_moved_are_where_the_changelog_says() -> None:
    rows = NAMES_MOVED.findall(text_of("CHANGELOG.md"))
    assert rows
    places = [f"{new}: {name}" for names, _, new in rows for name in CODE.findall(names)]
    assert not [wrong for place in places if (wrong := problem(place)) is not None]
