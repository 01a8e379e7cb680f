"""From TOML to a Job. An error is one line: file and line, the key, and what was expected.

    bootstrap = "127.0.0.1:9092"
    checkpoints = "checkpoints"

    [pipeline.orders]
    kind = "ingest"
    ...

Relative paths count from the folder of the file, so that a job does the same from wherever it is started.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import types
import typing
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pylogd.config.config_error import did_you_mean
from pylogd.config.toml_lines import toml_lines
from pylogd.spark_connector.pipelines.job_settings import KINDS, Files, Job, Pipeline, SettingError

T = TypeVar("T")


class LoadError(ValueError):
    """A file that declares no usable job; the message is for the user."""


def load(path: str, overrides: Sequence[str] = ()) -> Job:
    """The job of a file; overrides are `dotted.key=value`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LoadError(f"{path}: not valid TOML: {error}") from None
    for override in overrides:
        _override(document, override)
    try:
        return build(document, os.path.dirname(os.path.abspath(path)))
    except SettingError as error:
        raise LoadError(f"{_place(path, text, error.key)}: {error}") from None


def build(document: dict[str, Any], folder: str) -> Job:
    """The job of a parsed file whose relative paths count from the folder."""
    rest = dict(document)
    tables = rest.pop("pipeline", {})
    if not isinstance(tables, dict) or not tables:
        raise SettingError("pipeline", "missing; expected at least one table [pipeline.NAME]")
    pipelines = [_pipeline(name, table, folder) for name, table in tables.items()]
    job = _make(Job, "", rest | {"pipelines": pipelines})
    return dataclasses.replace(job, checkpoints=resolve(job.checkpoints, folder))


def resolve(path: str, folder: str) -> str:
    """Relative to the folder, unless it is empty, absolute or has a scheme (hdfs://, s3a://)."""
    return path if not path or "://" in path else os.path.join(folder, path)


def _pipeline(name: str, table: Any, folder: str) -> Pipeline:
    place = f"pipeline.{name}"
    if not isinstance(table, dict):
        raise SettingError(place, f"expected a table, not {table!r}")
    settings = dict(table)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        given = "missing" if kind is None else f"not {kind!r}"
        raise SettingError(f"{place}.kind", f"{given}; expected one of {', '.join(KINDS)}")
    try:
        pipeline = _make(KINDS[kind], place, settings | {"name": name})
    except SettingError as error:
        # A check inside the dataclass knows only the pipeline's own name.
        raise SettingError("pipeline." + error.key.removeprefix("pipeline."), error.problem) from None
    changes: dict[str, Any] = {"checkpoint": resolve(pipeline.checkpoint, folder)}
    if kind in ("sink", "materialise"):
        changes["output"] = resolve(settings["output"], folder)
    for key, value in (("input", settings.get("input")), ("tables", settings.get("tables"))):
        if isinstance(value, dict):
            changes[key] = _files(getattr(pipeline, key), folder)
    return dataclasses.replace(pipeline, **changes)


def _files(value: Any, folder: str) -> Any:
    if isinstance(value, Files):
        return dataclasses.replace(value, path=resolve(value.path, folder))
    return {name: _files(table, folder) for name, table in value.items()}


def _make(cls: type[T], place: str, table: dict[str, Any]) -> T:
    """An instance of a settings dataclass from a TOML table, each value of the declared type."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, cls))}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{place}.{key}" if place else key
        if key not in fields:
            near = did_you_mean(key, fields)
            hint = f"did you mean {near}?" if near else f"expected one of {', '.join(sorted(fields))}"
            raise SettingError(name, f"unknown; {hint}")
        expected = fields[key].metadata.get("expected", "")
        values[key] = _convert(hints[key], name, value, expected)
    for field in fields.values():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            name = f"{place}.{field.name}" if place else field.name
            raise SettingError(name, f"missing; expected {field.metadata['expected']}")
    return cls(**values)


def _convert(hint: Any, name: str, value: Any, expected: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        converter = _CONVERTERS.get(typing.get_origin(option) or option)
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return _make(typing.cast("type[Any]", option), name, value)
        if converter is not None and (found := converter(option, name, value, expected)) is not None:
            return found
    raise SettingError(name, f"expected {expected}, not {value!r}")


def _list(option: Any, name: str, value: Any, expected: str) -> list[Any] | None:
    (item,) = typing.get_args(option)
    if not isinstance(value, list):
        return None
    if item is Pipeline:
        return value
    return [_convert(item, f"{name}[{number}]", entry, expected) for number, entry in enumerate(value)]


def _dict(option: Any, name: str, value: Any, expected: str) -> dict[str, Any] | None:
    _, item = typing.get_args(option)
    if not isinstance(value, dict):
        return None
    # Spark and Kafka take texts; a number or a truth value in TOML means its text.
    if item is str:
        value = {key: _text(entry) for key, entry in value.items()}
    return {key: _convert(item, f"{name}.{key}", entry, expected) for key, entry in value.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _scalar(kind: type) -> Callable[[Any, str, Any, str], Any]:
    def convert(_option: Any, _name: str, value: Any, _expected: str) -> Any:
        # In Python True is an int; in a settings file it is a mistake.
        return value if isinstance(value, kind) and isinstance(value, bool) == (kind is bool) else None

    return convert


_CONVERTERS: dict[Any, Callable[[Any, str, Any, str], Any]] = {
    str: _scalar(str),
    int: _scalar(int),
    bool: _scalar(bool),
    datetime: _scalar(datetime),
    list: _list,
    dict: _dict,
}


def _override(document: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    if not separator:
        raise LoadError(f"--set {override}: expected key=value")
    *tables, key = dotted.strip().split(".")
    table = document
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise LoadError(f"--set {override}: {part} is not a table")
    try:
        table[key] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        table[key] = text


def _place(path: str, text: str, key: str) -> str:
    """The line of the key, or of the nearest table around it."""
    lines = toml_lines(text)
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{path}:{lines[key]}" if key else path
