"""Message classes are the schema: how a class body becomes a slotted data class and a list of wire fields.

    class TopicProduceData(Struct):
        name: Annotated[str, until(12), ignorable] = ""
        topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
        partition_data: list[PartitionProduceData] = []

One class serves all versions. An annotation gives the wire type: `str`, `bytes`, `bool`, `float` (float64), the types
of `wire`, another Struct, or a list of one of these; `| None` makes the field nullable. Markers narrow it:

    since(3)             the field exists from version 3 on
    until(7)             and up to version 7
    nullable(since=2)    null is allowed only from version 2 on (also until=)
    tagged(0, since=12)  from version 12 on it travels as tagged field 0; if there is no since(), it exists only there
    ignorable            its value is dropped silently in versions that lack it; without this, a value other than the
                         default cannot be encoded in those versions
    not_compact          keeps the old string format in flexible versions (the request header's client id)

The assigned value is the default of the class and of versions without the field. `[]` means a new list for each object,
DEFAULT a struct with default values. Such a struct may be one shared read-only object: assign a new struct, do not
change it in place.

Importing a message module must stay cheap, because a broker imports one per API it is asked for. So nothing is
generated when a class is made: `__init__` is built on the first call, annotations stay strings until a codec needs
them.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, dataclass_transform

from pylogd.protocol.wire import BOOL, FLOAT64, Fixed, RecordData

LAST: Final = 32767


class _Default:
    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final[Any] = _Default()


class since:
    __slots__ = ("version",)

    def __init__(self, version: int) -> None:
        self.version = version


class until:
    __slots__ = ("version",)

    def __init__(self, version: int) -> None:
        self.version = version


class nullable:
    __slots__ = ("since", "until")

    def __init__(self, since: int = 0, until: int = LAST) -> None:
        self.since = since
        self.until = until


class tagged:
    __slots__ = ("since", "tag")

    def __init__(self, tag: int, since: int) -> None:
        self.tag = tag
        self.since = since


class _Flag:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


ignorable: Final = _Flag("ignorable")
not_compact: Final = _Flag("not_compact")


@dataclass_transform()
class StructMeta(type):
    """Turns annotated fields into slots and remembers their defaults."""

    _defaults: dict[str, Any]

    def __new__(meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructMeta:
        if bases and "__slots__" not in namespace:
            names = tuple(namespace.get("__annotations__", ()))
            namespace["_defaults"] = {field: namespace.pop(field) for field in names}
            namespace["__slots__"] = names
        return super().__new__(meta, name, bases, namespace, **options)


class Struct(metaclass=StructMeta):
    """Base of every struct and message: built with keyword (or positional) arguments, compared by value."""

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    _shared: ClassVar[Any] = None
    _fields: ClassVar[list[Field] | None] = None

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **values: Any) -> None:
            cls = type(self)
            cls.__init__ = _make_init(cls)
            cls.__init__(self, *args, **values)

    def __eq__(self, other: object) -> bool:
        names = type(self)._defaults
        if not isinstance(other, Struct) or type(other)._defaults is not names:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._defaults)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that travels on its own: a request, a response, a header, a record's key or value."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1  # of a request and response; the record type of a key or value
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = LAST  # first version with compact types and tagged fields
    UNSTABLE: ClassVar[bool] = False  # the last version is not settled and not advertised
    _encoders: ClassVar[dict[int, Callable[..., Any]]]
    _decoders: ClassVar[dict[int, Callable[..., Any]]]

    def __init_subclass__(
        cls, *, versions: tuple[int, int], api_key: int = -1, flexible: int = LAST, unstable: bool = False
    ) -> None:
        cls.API_KEY = api_key
        cls.VERSIONS = versions
        cls.FLEXIBLE = flexible
        cls.UNSTABLE = unstable
        cls._encoders = {}
        cls._decoders = {}


class Field:
    """One field of a struct with its annotation taken apart. `kind` is a Fixed, a RecordData, `str`, `bytes` or a
    Struct class: of the elements if `array`."""

    __slots__ = (
        "array",
        "compact",
        "default",
        "first",
        "ignorable",
        "kind",
        "last",
        "name",
        "null_first",
        "null_last",
        "optional",
        "tag",
        "tag_first",
    )

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        self.name = name
        self.default = default
        self.array = False
        self.compact = True
        self.ignorable = False
        self.first, self.last = 0, LAST
        self.null_first, self.null_last = LAST + 1, LAST
        self.tag, self.tag_first = -1, LAST + 1
        self.kind: Any = None
        first: int | None = None
        null: nullable | None = None
        self.optional = False  # may be null in some version
        pending = [annotation]
        while pending:
            part = pending.pop(0)
            origin = typing.get_origin(part)
            if origin is typing.Annotated:
                pending += typing.get_args(part)
            elif origin is UnionType or origin is typing.Union:
                self.optional = True
                pending += [arg for arg in typing.get_args(part) if arg is not NoneType]
            elif origin is list:
                self.array = True
                pending += typing.get_args(part)
            elif isinstance(part, since):
                first = part.version
            elif isinstance(part, until):
                self.last = part.version
            elif isinstance(part, nullable):
                null = part
            elif isinstance(part, tagged):
                self.tag, self.tag_first = part.tag, part.since
            elif part is ignorable:
                self.ignorable = True
            elif part is not_compact:
                self.compact = False
            elif isinstance(part, Fixed | RecordData):
                self.kind = part
            elif part is bool:
                self.kind = BOOL
            elif part is float:
                self.kind = FLOAT64
            elif part is str or part is bytes or isinstance(part, StructMeta):
                self.kind = self.kind or part
        self.first = first if first is not None else self.tag_first if self.tag >= 0 else 0
        if self.optional:
            self.null_first = null.since if null else self.first
            self.null_last = null.until if null else LAST

    def present(self, version: int) -> bool:
        return self.first <= version <= self.last

    def nullable(self, version: int) -> bool:
        return self.null_first <= version <= self.null_last

    def tagged(self, version: int) -> bool:
        return version >= self.tag_first

    @property
    def struct(self) -> type[Struct] | None:
        if not isinstance(self.kind, StructMeta):
            return None
        cls: type[Struct] = self.kind  # type: ignore[assignment]
        return cls


def fields(cls: type[Struct]) -> list[Field]:
    """The wire fields of a struct in wire order."""
    if cls._fields is not None:
        return cls._fields
    namespace = vars(sys.modules[cls.__module__])
    notes = vars(cls).get("__annotations__", {})
    cls._fields = [Field(name, eval(notes[name], namespace), default) for name, default in cls._defaults.items()]
    return cls._fields


def shared_default(cls: type[Struct]) -> Any:
    """The one read-only object that stands for "a `cls` with default values" wherever a field defaults to it; None if
    the struct holds a list or struct itself, because those could be changed in place."""
    if cls._shared is None:
        if any(value is DEFAULT or type(value) is list for value in cls._defaults.values()):
            return None

        def refuse(self: Any, name: str, value: Any) -> None:
            raise AttributeError(f"{cls.__name__} is a shared default: assign a new one instead of setting {name}")

        space = {
            "__slots__": (),
            "__module__": cls.__module__,
            "__setattr__": refuse,
            "__reduce__": lambda self: (cls, ()),  # a copy is an ordinary struct
            "_defaults": cls._defaults,
        }
        variant: Any = StructMeta(cls.__name__, (cls,), space)
        frozen = object.__new__(variant)
        for name, value in cls._defaults.items():
            object.__setattr__(frozen, name, value)
        cls._shared = frozen
    return cls._shared


def default_expressions(cls: type[Struct]) -> Iterator[tuple[str, str, Any]]:
    """Per field: its name, the source text of its default, and the object that text needs under `d_<name>`, if any."""
    struct_of: dict[str, type[Struct] | None] = {}
    for name, value in cls._defaults.items():
        if value is DEFAULT:
            struct_of = struct_of or {field.name: field.struct for field in fields(cls)}
            struct = struct_of[name]
            assert struct is not None
            shared = shared_default(struct)
            yield (name, f"d_{name}", shared) if shared is not None else (name, f"d_{name}()", struct)
        elif type(value) is list:
            yield name, "[]", None
        else:
            yield name, repr(value), None


def _make_init(cls: type[Struct]) -> Callable[..., None]:
    """`def __init__(self, a=0, b=DEFAULT): self.a = a; ...`, with new lists and structs made per object."""
    space: dict[str, Any] = {"DEFAULT": DEFAULT}
    params, body = ["self"], []
    for name, text, needed in default_expressions(cls):
        if needed is not None:
            space[f"d_{name}"] = needed
        if text.endswith(("[]", "()")):
            params.append(f"{name}=DEFAULT")
            body.append(f"self.{name} = {text} if {name} is DEFAULT else {name}")
        else:
            params.append(f"{name}={text}")
            body.append(f"self.{name} = {name}")
    source = f"def __init__({', '.join(params)}):\n    " + "\n    ".join(body or ["pass"])
    exec(source, space)
    init: Callable[..., None] = space["__init__"]
    return init
