"""The source keeps itself in order: sizes, cycles, names, one hand. What may differ is listed here with its reason.

An exception that is no longer needed fails as well, so that the lists only get shorter.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from support.sources import Module, cycles, functions, import_graph, modules, nesting

#: A function fits on one screen, with its signature and docstring.
FUNCTION_LINES_MAX = 60
NESTING_MAX = 4
FILE_LINES_MAX = 400
#: "About 16".
ROOM_MODULES_MAX = 17
CYCLE_MODULES_MAX = 4

LONG_FUNCTIONS: dict[str, str] = {}

DEEP_FUNCTIONS: dict[str, str] = {}

LONG_FILES = {
    "replication/partition.py": "a replica's role, its append and its waits share the fields that every request reads; "
    "divided further they would sit behind calls",
}

LARGE_ROOMS = {
    "protocol/messages": "one module per API or kind of record",
    "broker/handlers": "one module per API",
}

#: Modules in them are named after APIs.
NAMED_AFTER_APIS = ("protocol/messages", "broker/handlers")

REPEATED_NAMES = {
    "__main__": "what `python -m` runs has no other name",
}

OTHER_LOGGERS = {
    "cli/daemon.py": "what the process as a whole has to say is said by `pylogd`",
}


def own() -> Iterator[Module]:
    return (module for module in modules().values() if not module.is_package)


# -- sizes


def test_functions_fit_on_one_screen() -> None:
    found = {
        f"{module.path}: {name}": function.end_lineno - function.lineno + 1
        for module in modules().values()
        for name, function in functions(module)
        if function.end_lineno is not None
    }
    assert {name for name, lines in found.items() if lines > FUNCTION_LINES_MAX} == set(LONG_FUNCTIONS)


def test_functions_are_not_nested_deeply() -> None:
    found = {
        f"{module.path}: {name}": nesting(each) for module in modules().values() for name, each in functions(module)
    }
    assert {name for name, depth in found.items() if depth > NESTING_MAX} == set(DEEP_FUNCTIONS)


def test_files_have_one_noun() -> None:
    long = {str(module.path) for module in modules().values() if module.text.count("\n") > FILE_LINES_MAX}
    assert long == set(LONG_FILES)


def test_rooms_are_not_crowded() -> None:
    rooms = Counter(module.room for module in own())
    assert {room for room, count in rooms.items() if count > ROOM_MODULES_MAX} == set(LARGE_ROOMS)


# -- cycles


def test_no_cycle_of_imports_is_large_or_leaves_its_folder() -> None:
    """Imports for types count: whoever reads one of the modules has to read them all."""
    known = modules()
    wrong = [
        cycle
        for cycle in cycles(import_graph())
        if len(cycle) > CYCLE_MODULES_MAX or len({known[name].room for name in cycle}) > 1
    ]
    assert not wrong


def test_the_search_for_cycles_finds_them() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a", "f"]}
    assert sorted(cycles(graph)) == [["a", "b", "c"], ["d", "e"]]


# -- names


def test_module_names_mean_one_thing() -> None:
    places = defaultdict(list)
    for module in own():
        if module.room not in NAMED_AFTER_APIS:
            places[module.path.stem].append(str(module.path))
    assert {name for name, paths in places.items() if len(paths) > 1} == set(REPEATED_NAMES)


def test_a_logger_is_named_after_its_module() -> None:
    made = [
        (module.path, ast.unparse(statement))
        for module in modules().values()
        for statement in module.tree.body
        if isinstance(statement, ast.Assign) and "getLogger(" in ast.unparse(statement)
        if str(module.path) not in OTHER_LOGGERS
    ]
    assert made
    wrong = [(path, text) for path, text in made if text != "logger = logging.getLogger(__name__)"]
    assert not wrong


# -- one hand

SECTION = re.compile(r"\s*#\s?(?:[-=*#~]{2,}).*")
SECTION_MARK = re.compile(r"\s*# -- [^-=*#~].*[^-=*#~ ]")


def test_section_marks_have_one_form() -> None:
    wrong = [
        f"{module.path}:{number}: {line}"
        for module in modules().values()
        for number, line in enumerate(module.text.splitlines(), 1)
        if SECTION.fullmatch(line) and not SECTION_MARK.fullmatch(line)
    ]
    assert not wrong


@pytest.mark.parametrize("name", sorted(name for name, module in modules().items() if module.is_package))
def test_a_package_says_in_one_sentence_what_it_is_for(name: str) -> None:
    first = (ast.get_docstring(modules()[name].tree) or "").split("\n\n")[0]
    assert re.fullmatch(r"[^.?!]+(?:\.\w[^.?!]*)*[.?!]", first), first
