"""The product's own source, parsed: every module with its imports and functions. For the tests that keep it tidy."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from support.paths import CHECKOUT

PACKAGES = (
    "api",
    "protocol",
    "runtime",
    "config",
    "metadata",
    "rpc",
    "storage",
    "replication",
    "controller",
    "coordinators",
    "broker",
    "audit",
    "cli",
    "spark_connector",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One file. `name` is what it is imported by; `room` is its folder."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.path.parent.as_posix()

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@functools.cache
def modules() -> dict[str, Module]:
    """By name. Paths are relative to the checkout."""
    found = {}
    for package in PACKAGES:
        for file in sorted((CHECKOUT / package).rglob("*.py")):
            path = file.relative_to(CHECKOUT)
            parts = path.with_suffix("").parts
            if package == "api":
                parts = parts[1:]
            name = ".".join(("pylogd", *parts)).removesuffix(".__init__")
            text = file.read_text()
            found[name] = Module(name, path, text, ast.parse(text))
    return found


def imports(module: Module) -> set[str]:
    """The modules it imports, wherever in the file: also for types only, also on first use."""
    known = modules()
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found |= {name for name in (inner if inner in known else node.module,) if name in known}
    return found - {module.name}


def import_graph() -> dict[str, list[str]]:
    return {name: sorted(imports(module)) for name, module in modules().items()}


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """What reaches itself, directly or not: the strongly connected components of two and more (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            place = stack.index(name)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """All functions with their names as a reader would say them: `Class.method`, `outer.inner`."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, Function):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    return walk(module.tree, "")


_DEEPER = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def nesting(function: Function) -> int:
    """How deep statements lie within statements. `elif` is no deeper than its `if`; an inner function counts itself."""

    def depth(body: list[ast.stmt]) -> int:
        return max((of(statement) for statement in body), default=0)

    def of(statement: ast.stmt) -> int:
        if not isinstance(statement, _DEEPER):
            return 0
        deepest = 0
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, [])
            if field == "orelse" and isinstance(statement, ast.If) and len(inner) == 1 and isinstance(inner[0], ast.If):
                deepest = max(deepest, of(inner[0]))
            elif inner:
                deepest = max(deepest, 1 + depth(inner))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            deepest = max(deepest, 1 + depth(part.body))
        return deepest

    return depth(function.body)
