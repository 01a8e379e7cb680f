"""Writes the encode and decode function of one message in one version: straight-line source, compiled on first use.

Adjacent fixed-width fields, together with a following length, count or empty tag section, become one precompiled
`Struct`; lengths that fit one varint byte never leave the function; nested structs and arrays are inlined, so a message
is one function call. Values absent from the version get their defaults. To see what runs:

    python -m pylogd.protocol.codegen ProduceRequest 9

Decode trusts nothing: counts are held against the bytes that are left before anything is allocated, and reading past
the end (IndexError, struct.error) or bad UTF-8 surface as ProtocolError. Tagged fields unknown to us are skipped.
"""

from __future__ import annotations

import linecache
import struct
import sys
from collections.abc import Callable
from struct import Struct as Packer
from typing import Any

from pylogd.protocol import wire
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.schema import DEFAULT, Field, Message, Struct, default_expressions, fields, shared_default

# Arrays of numbers up to this count use a ready-made Struct; longer ones make theirs.
_SMALL_ARRAY = 16


def unsupported(name: str, field: str, version: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} version {version} cannot carry a {field}")


def has_records(cls: type[Struct]) -> bool:
    return any(
        isinstance(field.kind, wire.RecordData) or (field.struct is not None and has_records(field.struct))
        for field in fields(cls)
    )


class Writer:
    """Lines of source being written, with the names they use from outside."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version >= cls.FLEXIBLE
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {}
        self.unique = 0
        # The run of fixed-width values not yet emitted: (format, width, value expression or assignment target).
        self.run: list[tuple[str, int, str]] = []

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def local(self, prefix: str) -> str:
        self.unique += 1
        return f"{prefix}{self.unique}"

    def name(self, prefix: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, formats: list[str], method: str) -> str:
        # `name = method of Struct(format)`: the name spells the format, so equal runs share it.
        text = "".join(formats)
        name = f"{method}_{text.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = getattr(Packer(">" + text), method)
        return name

    def small_arrays(self, kind: wire.Fixed, method: str) -> str:
        name = f"{method}s_{kind.format.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = tuple(getattr(Packer(">" + kind.format * n), method) for n in range(_SMALL_ARRAY))
        return name

    def fields(self, cls: type[Struct]) -> tuple[list[Field], list[Field]]:
        """Fields of this version: those in line, and the tagged ones by ascending tag."""
        present = [field for field in fields(cls) if field.present(self.version)]
        tags = [field for field in present if self.flexible and field.tagged(self.version)]
        return [field for field in present if field not in tags], sorted(tags, key=lambda field: field.tag)

    def compact(self, field: Field) -> bool:
        return self.flexible and field.compact

    def build(self, name: str, parameters: str) -> Callable[..., Any]:
        source = self.source(name, parameters)
        filename = f"<pylogd {self.cls.__name__} v{self.version} {name}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.names)
        function: Callable[..., Any] = self.names[name]
        return function

    def source(self, name: str, parameters: str) -> str:
        return "\n".join([f"def {name}({parameters}):", *self.lines, ""])


class EncodeWriter(Writer):
    """`encode(msg, buf, splits)` appends the message to the bytearray `buf`; see wire.put_records for `splits`."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.names |= {
            "put_uvarint": wire.put_uvarint,
            "put_string_length": wire.put_string_length,
            "put_records": wire.put_records,
            "put_tag": wire.put_tag,
            "unsupported": unsupported,
        }
        self.buf = "buf"
        self.struct(cls, "msg")
        self.flush()
        if not self.lines:
            self.emit("pass")

    def struct(self, cls: type[Struct], obj: str) -> None:
        for field in fields(cls):
            if not field.present(self.version) and not field.ignorable:
                self.emit(f"if {self.differs(field, f'{obj}.{field.name}')}:")
                self.emit(f"    raise unsupported({cls.__name__!r}, {field.name!r}, {self.version})")
        inline, tags = self.fields(cls)
        for field in inline:
            self.field(field, obj)
        if tags:
            self.tags(tags, obj)
        elif self.flexible:
            self.run.append(("x", 1, ""))

    def differs(self, field: Field, value: str) -> str:
        """Source of the test "`value` is not this field's default"."""
        if field.default is None:
            return f"{value} is not None"
        if field.array or field.kind in (str, bytes):
            test = f"{value}" if not field.default else f"{value} != {field.default!r}"
            return f"({test} or {value} is None)" if field.optional else test
        if field.default is DEFAULT:
            assert field.struct is not None
            inner = " or ".join(self.differs(part, f"{value}.{part.name}") for part in fields(field.struct))
            shared = shared_default(field.struct)
            test = f"({inner})"
            if shared is not None:
                test = f"{value} is not {self.name('default', shared)} and {test}"
            return f"({value} is None or {test})" if field.optional else f"({test})"
        if isinstance(field.default, bool):
            return f"not {value}" if field.default else value
        return f"{value} != {field.default!r}" if field.default != 0 else value

    def field(self, field: Field, obj: str) -> None:
        value = f"{obj}.{field.name}"
        nullable = field.nullable(self.version)
        if field.array:
            self.array(field, value, nullable)
        elif isinstance(field.kind, wire.Fixed):
            self.run.append((field.kind.format, field.kind.size, value))
        elif isinstance(field.kind, wire.RecordData):
            self.flush()
            self.emit(f"put_records({self.buf}, splits, {value}, {self.flexible})")
        elif field.struct is not None:
            self.nested(field, field.struct, value, nullable)
        else:
            self.blob(field, value, nullable)

    def blob(self, field: Field, value: str, nullable: bool) -> None:
        data, size = self.local("b"), self.local("n")
        encode = ".encode()" if field.kind is str else ""
        if nullable:
            held = self.local("v")
            self.emit(f"{held} = {value}")
            self.emit(f"if {held} is None:")
            self.emit(f"    {data} = b''; {size} = {0 if self.compact(field) else -1}")
            self.emit("else:")
            self.emit(f"    {data} = {held}{encode}; {size} = len({data}){' + 1' if self.compact(field) else ''}")
        else:
            self.emit(f"{data} = {value}{encode}")
            size = f"len({data})"
            if self.compact(field):
                size = self.local("n")
                self.emit(f"{size} = len({data}) + 1")
        self.length(field, size, "h" if field.kind is str else "i")
        self.emit(f"{self.buf} += {data}")

    def length(self, field: Field, size: str, fixed: str) -> None:
        """Emit the run with this length at its end."""
        if not self.compact(field):
            self.run.append((fixed, 2 if fixed == "h" else 4, size))
            self.flush()
            return
        put = "put_string_length" if fixed == "h" else "put_uvarint"
        run, self.run = self.run, []
        self.emit(f"if {size} < 128:")
        self.depth += 1
        self.run = [*run, ("B", 1, size)]
        self.flush()
        self.depth -= 1
        self.emit("else:")
        self.depth += 1
        self.run = run
        self.flush()
        self.emit(f"{put}({self.buf}, {size})")
        self.depth -= 1
        self.run = []

    def array(self, field: Field, value: str, nullable: bool) -> None:
        held = self.local("v")
        size = f"len({held})"
        self.emit(f"{held} = {value}")
        if nullable:
            size = self.local("n")
            plus = " + 1" if self.compact(field) else ""
            self.emit(f"{size} = {0 if self.compact(field) else -1} if {held} is None else len({held}){plus}")
        elif self.compact(field):
            size = self.local("n")
            self.emit(f"{size} = len({held}) + 1")
        self.length(field, size, "i")
        kind = field.kind
        if isinstance(kind, wire.Fixed):
            self.emit(f"if {held}:")
            packers = self.small_arrays(kind, "pack")
            self.names["pack"] = struct.pack
            count = self.local("n")
            self.emit(f"    {count} = len({held})")
            many = f"pack('>' + {kind.format!r} * {count}, *{held})"
            self.emit(f"    {self.buf} += {packers}[{count}](*{held}) if {count} < {_SMALL_ARRAY} else {many}")
            return
        if nullable:
            self.emit(f"if {held}:")
            self.depth += 1
        item = self.local("o")
        self.emit(f"for {item} in {held}:")
        self.depth += 1
        if field.struct is not None:
            self.struct(field.struct, item)
            self.flush()
        else:
            self.blob(field, item, False)
        self.depth -= 2 if nullable else 1

    def nested(self, field: Field, cls: type[Struct], value: str, nullable: bool) -> None:
        held = self.local("o")
        self.emit(f"{held} = {value}")
        if not nullable:
            self.struct(cls, held)
            return
        self.flush()
        in_tag = self.flexible and field.tagged(self.version)
        self.emit(f"if {held} is None:")
        self.emit(f"    {self.buf}.append({0 if in_tag else 255})")
        self.emit("else:")
        self.depth += 1
        self.emit(f"{self.buf}.append(1)")
        self.struct(cls, held)
        self.flush()
        self.depth -= 1

    def tags(self, tags: list[Field], obj: str) -> None:
        """The tag section: its count and the fields that differ from their defaults, each measured in a side buffer."""
        tests = [self.differs(field, f"{obj}.{field.name}") for field in tags]
        run, outer = self.run, self.buf
        self.emit(f"if {' or '.join(tests)}:")
        self.depth += 1
        self.run = [*run]
        self.flush()
        count, section = self.local("count"), self.local("section")
        self.emit(f"{count} = 0; {section} = bytearray()")
        for field, test in zip(tags, tests, strict=True):
            self.emit(f"if {test}:")
            self.depth += 1
            payload = self.buf = self.local("payload")
            self.emit(f"{payload} = bytearray(); {count} += 1")
            self.field(field, obj)
            self.flush()
            self.emit(f"put_tag({section}, {field.tag}, {payload})")
            self.buf = outer
            self.depth -= 1
        self.emit(f"{self.buf}.append({count}); {self.buf} += {section}")
        self.depth -= 1
        self.emit("else:")
        self.depth += 1
        self.run = [*run, ("x", 1, "")]
        self.flush()
        self.depth -= 1

    def flush(self) -> None:
        if not self.run:
            return
        formats = [format for format, _, _ in self.run]
        values = [value for format, _, value in self.run if format != "x"]
        self.run = []
        if not values:
            zeros = len(formats)
            self.emit(f"{self.buf}.append(0)" if zeros == 1 else f"{self.buf} += {bytes(zeros)!r}")
        elif formats == ["B"]:
            self.emit(f"{self.buf}.append({values[0]})")
        else:
            self.emit(f"{self.buf} += {self.packer(formats, 'pack')}({', '.join(values)})")


class DecodeWriter(Writer):
    """`decode(view, pos)` returns the message and the position behind it; `view` ends where the message must."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.names |= {
            "new": object.__new__,
            "uvarint_tail": wire.uvarint_tail,
            "read_uvarint": wire.read_uvarint,
            "skip_tags": wire.skip_tags,
            "truncated": wire.truncated,
            "bad_null": wire.bad_null,
            "bad_length": wire.bad_length,
            "bad_tag_size": wire.bad_tag_size,
            "ProtocolError": ProtocolError,
            "struct_error": struct.error,
        }
        # Reading bytes is faster than reading a memoryview; but records must stay slices of the caller's buffer.
        self.zero_copy = has_records(cls)
        self.emit(
            "if type(view) is not memoryview: view = memoryview(view)"
            if self.zero_copy
            else "if type(view) is not bytes: view = bytes(view)"
        )
        self.emit("end = len(view)")
        self.emit("try:")
        self.depth += 1
        root = self.struct(cls)
        self.flush()
        self.emit(f"return {root}, pos")
        self.depth -= 1
        self.emit("except (IndexError, struct_error):")
        self.emit("    raise ProtocolError('message ends too early') from None")
        self.emit("except UnicodeDecodeError as error:")
        self.emit("    raise ProtocolError(f'string is not UTF-8: {error}') from None")

    def struct(self, cls: type[Struct]) -> str:
        """Emit the reading of one struct and return the local that holds it; a run may still be pending."""
        obj = self.local("o")
        self.emit(f"{obj} = new({self.name('T_' + cls.__name__, cls)})")
        inline, tags = self.fields(cls)
        absent = {field.name for field in fields(cls)} - {field.name for field in inline}
        for name, text, needed in default_expressions(cls):
            if name in absent:
                if needed is not None:
                    text = text.replace(f"d_{name}", self.name("default", needed))
                self.emit(f"{obj}.{name} = {text}")
        for field in inline:
            self.field(field, f"{obj}.{field.name}", f"{cls.__name__}.{field.name}")
        if self.flexible:
            count = self.local("n")
            self.run.append(("B", 1, count))
            self.flush()
            self.emit(f"if {count}:")
            self.depth += 1
            if tags:
                self.tags(cls, tags, obj, count)
            else:
                self.emit(f"pos = skip_tags(view, pos, end, {count})")
            self.depth -= 1
        return obj

    def tags(self, cls: type[Struct], tags: list[Field], obj: str, count: str) -> None:
        tag, size, stop = self.local("tag"), self.local("n"), self.local("stop")
        self.emit(f"if {count} > 127: {count}, pos = uvarint_tail(view, pos, {count})")
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, pos = read_uvarint(view, pos)")
        self.emit(f"{size}, pos = read_uvarint(view, pos)")
        self.emit(f"{stop} = pos + {size}")
        self.emit(f"if {stop} > end: truncated()")
        for position, field in enumerate(tags):
            self.emit(f"{'el' if position else ''}if {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{obj}.{field.name}", f"{cls.__name__}.{field.name}")
            self.flush()
            self.emit(f"if pos != {stop}: bad_tag_size({f'{cls.__name__}.{field.name}'!r})")
            self.depth -= 1
        self.emit("else:")
        self.emit(f"    pos = {stop}")
        self.depth -= 1

    def field(self, field: Field, target: str, title: str) -> None:
        if field.array:
            self.array(field, target, title)
        elif isinstance(field.kind, wire.Fixed):
            self.run.append((field.kind.format, field.kind.size, target))
        elif field.struct is not None:
            self.nested(field, field.struct, target)
        else:
            self.blob(field, target, title, field.nullable(self.version))

    def length(self, field: Field, fixed: str) -> str:
        """Read the run with this length at its end; the local holds the length, plus one if compact."""
        size = self.local("n")
        if self.compact(field):
            self.run.append(("B", 1, size))
            self.flush()
            self.emit(f"if {size} > 127: {size}, pos = uvarint_tail(view, pos, {size})")
        else:
            self.run.append((fixed, 2 if fixed == "h" else 4, size))
            self.flush()
        return size

    def null(self, field: Field, size: str, target: str, title: str, nullable: bool) -> None:
        """Emit the branch for null and open the one for a value."""
        self.emit(f"if {size} == 0:" if self.compact(field) else f"if {size} < 0:")
        self.emit(f"    {target} = None" if nullable else f"    bad_null({title!r})")
        self.emit("else:")
        self.depth += 1

    def blob(self, field: Field, target: str, title: str, nullable: bool) -> None:
        size = self.length(field, "h" if field.kind is str else "i")
        self.null(field, size, target, title, nullable)
        minus = " - 1" if self.compact(field) else ""
        stop = self.local("e")
        self.emit(f"{stop} = pos + {size}{minus}")
        limit = f" or {size} > {wire.STRING_BYTES_MAX + 1}" if field.kind is str and self.compact(field) else ""
        self.emit(f"if {stop} > end{limit}: bad_length({title!r}, {size}{minus})")
        value = f"view[pos:{stop}]"
        if self.zero_copy and not isinstance(field.kind, wire.RecordData):
            value += ".tobytes()"
        if field.kind is str:
            value += ".decode()"
        self.emit(f"{target} = {value}")
        self.emit(f"pos = {stop}")
        self.depth -= 1

    def array(self, field: Field, target: str, title: str) -> None:
        size = self.length(field, "i")
        self.null(field, size, target, title, field.nullable(self.version))
        if self.compact(field):
            self.emit(f"{size} -= 1")
        kind = field.kind
        if isinstance(kind, wire.Fixed):
            self.names["unpack_from"] = struct.unpack_from
            stop = self.local("e")
            self.emit(f"{stop} = pos + {size} * {kind.size}")
            self.emit(f"if {stop} > end: bad_length({title!r}, {size})")
            few = f"{self.small_arrays(kind, 'unpack_from')}[{size}](view, pos)"
            many = f"unpack_from('>' + {kind.format!r} * {size}, view, pos)"
            self.emit(f"{target} = list({few} if {size} < {_SMALL_ARRAY} else {many})")
            self.emit(f"pos = {stop}")
        else:
            items = self.local("v")
            times = f" * {least}" if (least := self.least(field)) > 1 else ""
            self.emit(f"if {size}{times} > end - pos: bad_length({title!r}, {size})")
            self.emit(f"{items} = []")
            self.emit(f"for _ in range({size}):")
            self.depth += 1
            if field.struct is not None:
                item = self.struct(field.struct)
                self.flush()
            else:
                item = self.local("s")
                self.blob(field, item, title, False)
            self.emit(f"{items}.append({item})")
            self.depth -= 1
            self.emit(f"{target} = {items}")
        self.depth -= 1

    def least(self, field: Field) -> int:
        """The fewest bytes that an element of this array, or this field itself, takes."""
        if field.struct is not None and (field.array or not field.nullable(self.version)):
            inline, _ = self.fields(field.struct)
            parts = [0 if part.array else self.least(part) for part in inline]
            lengths = [1 if self.compact(part) else 4 for part in inline if part.array]
            return max(1, sum(parts) + sum(lengths) + self.flexible)
        if isinstance(field.kind, wire.Fixed):
            return field.kind.size
        if field.struct is not None or self.compact(field):
            return 1
        return 2 if field.kind is str else 4

    def nested(self, field: Field, cls: type[Struct], target: str) -> None:
        if not field.nullable(self.version):
            obj = self.struct(cls)
            self.emit(f"{target} = {obj}")
            return
        present = self.local("n")
        self.run.append(("b", 1, present))
        self.flush()
        in_tag = self.flexible and field.tagged(self.version)
        self.emit(f"if {present} {'<=' if in_tag else '<'} 0:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        self.depth += 1
        obj = self.struct(cls)
        self.flush()
        self.emit(f"{target} = {obj}")
        self.depth -= 1

    def flush(self) -> None:
        if not self.run:
            return
        formats = [format for format, _, _ in self.run]
        width = sum(size for _, size, _ in self.run)
        targets = [target for _, _, target in self.run]
        self.run = []
        if formats == ["B"]:
            self.emit(f"{targets[0]} = view[pos]")
        else:
            comma = "," if len(targets) == 1 else ""
            self.emit(f"{', '.join(targets)}{comma} = {self.packer(formats, 'unpack_from')}(view, pos)")
        self.emit(f"pos += {width}")


def make_encoder(cls: type[Message], version: int) -> Callable[..., None]:
    return EncodeWriter(cls, version).build("encode", "msg, buf, splits=None")


def make_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    return DecodeWriter(cls, version).build("decode", "view, pos=0")


def source(cls: type[Message], version: int) -> str:
    """Both functions' source, to read."""
    encode = EncodeWriter(cls, version).source("encode", "msg, buf, splits=None")
    return encode + "\n\n" + DecodeWriter(cls, version).source("decode", "view, pos=0")


def main() -> None:
    from pylogd.protocol.api import message_class

    name, version = sys.argv[1], int(sys.argv[2])
    print(source(message_class(name), version))


if __name__ == "__main__":
    main()
