"""Our classes against Kafka's schemas, message by message, version by version, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.protocol import wire
from pylogd.protocol.api import APIS, ApiKey, message_class
from pylogd.protocol.schema import DEFAULT, Field, Message, Struct, fields
from support.messages import all_messages
from support.schemas import JARS, Schema, kafka_schemas, snake_case, version_range

WIRE_NAMES = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "H": "uint16", "I": "uint32", "16s": "uuid"}
ZEROS = {"string": "", "bytes": b"", "bool": False, "float64": 0.0, "uuid": bytes(16), "records": None}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Schema]:
    return kafka_schemas()


def our_type(field: Field) -> str:
    if field.struct is not None:
        name = "struct"
    elif isinstance(field.kind, wire.RecordData):
        name = "records"
    elif isinstance(field.kind, type):
        name = {str: "string", bytes: "bytes"}[field.kind]
    else:
        name = {wire.BOOL: "bool", wire.FLOAT64: "float64"}.get(field.kind) or WIRE_NAMES[field.kind.format]
    return ("[]" if field.array else "") + name


def their_default(field: Schema, name: str) -> Any:
    default = field.get("default")
    if default == "null":
        return None
    if name.startswith("[]"):
        return []
    if name == "struct":
        return DEFAULT
    if default is None:
        return ZEROS.get(name, 0)
    if name == "bool":
        return str(default).lower() == "true"
    return default if name == "string" else int(str(default), 0)


def their_versions(field: Schema) -> range:
    return version_range(field.get("versions") or field["taggedVersions"])


def ours(cls: type[Struct], version: int) -> list[Any]:
    """What travels, nested structs included; and of what does not, whether it may be dropped."""
    described: list[Any] = []
    for field in fields(cls):
        if not field.present(version):
            described.append((field.name, "absent", field.ignorable, field.default))
            continue
        tag = field.tag if field.tagged(version) else None
        inner = ours(field.struct, version) if field.struct is not None else None
        described.append(
            (field.name, our_type(field), field.nullable(version), tag, field.default, field.compact, inner)
        )
    return described


def theirs(described_by: list[Schema], structs: dict[str, list[Schema]], version: int) -> list[Any]:
    described: list[Any] = []
    for field in described_by:
        name = snake_case(field["name"])
        base = field["type"].removeprefix("[]")
        inner_fields = field.get("fields") or structs.get(base)
        kind = field["type"] if inner_fields is None else field["type"].replace(base, "struct")
        default = their_default(field, kind)
        if version not in their_versions(field):
            described.append((name, "absent", str(field.get("ignorable", False)).lower() == "true", default))
            continue
        tag = field["tag"] if version in version_range(field.get("taggedVersions")) else None
        nullable = version in version_range(field.get("nullableVersions"))
        inner = None if inner_fields is None else theirs(inner_fields, structs, version)
        compact = field.get("flexibleVersions") != "none"
        described.append((name, kind, nullable, tag, default, compact, inner))
    return described


def check(schema: Schema, cls: type[Message]) -> None:
    valid = version_range(schema["validVersions"])
    flexible = version_range(schema["flexibleVersions"])
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    assert (valid[0], valid[-1]) == cls.VERSIONS
    assert schema.get("apiKey", -1) == cls.API_KEY
    assert bool(schema.get("latestVersionUnstable", False)) == cls.UNSTABLE
    for version in valid:
        assert (version >= cls.FLEXIBLE) == (version in flexible), version
        assert ours(cls, version) == theirs(schema["fields"], structs, version), version


def test_every_schema_has_its_class_and_the_same_fields_in_every_version(schemas: dict[str, Schema]) -> None:
    counts = dict.fromkeys(JARS, 0)
    compared = set()
    for name, schema in schemas.items():
        counts[schema["jar"]] += 1
        if schema["validVersions"] == "none":
            assert schema["apiKey"] in set(ApiKey)
            assert schema["apiKey"] not in APIS
            continue
        cls = message_class(name)
        check(schema, cls)
        compared.add(cls)
    assert counts == JARS
    assert compared == set(all_messages())


def test_a_wrong_class_is_noticed(schemas: dict[str, Schema]) -> None:
    with pytest.raises(AssertionError):
        check(schemas["FetchResponse"], message_class("ProduceResponse"))


def test_api_table(schemas: dict[str, Schema]) -> None:
    requests = [schema for schema in schemas.values() if schema["type"] == "request"]
    assert {schema["apiKey"] for schema in requests} == set(ApiKey)
    for schema in requests:
        key = ApiKey(schema["apiKey"])
        assert key.name == snake_case(schema["name"].removesuffix("Request")).upper()
        if key not in APIS:
            continue
        row = APIS[key]
        valid = version_range(schema["validVersions"])
        assert (row.first, row.last) == (valid[0], valid[-1])
        assert row.request.__name__ == schema["name"]
        assert row.request.FLEXIBLE == row.response.FLEXIBLE == row.flexible
        assert row.request.VERSIONS == row.response.VERSIONS == (row.first, row.last)
        assert set(row.listeners) == set(schema["listeners"])
        assert row.unstable == row.request.UNSTABLE
