"""Writes the source of a message's decode function."""

from __future__ import annotations

import struct
from itertools import repeat

from pylogd.protocol import wire
from pylogd.protocol.codegen.writer import SMALL_ARRAY, Writer
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.schema import Field, Message, Struct, default_expressions, fields


def has_records(cls: type[Struct]) -> bool:
    return any(
        isinstance(field.kind, wire.RecordData) or (field.struct is not None and has_records(field.struct))
        for field in fields(cls)
    )


class DecodeWriter(Writer):
    """`decode(view, pos)` returns the message and the position behind it; `view` ends where the message must."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.names |= {
            "new": object.__new__,
            "repeat": repeat,
            "uvarint_tail": wire.uvarint_tail,
            "string_length_tail": wire.string_length_tail,
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
        """Emit the making of one struct and return the local that holds it; a run may still be pending."""
        obj = self.local("o")
        self.emit(f"{obj} = new({self.name('T_' + cls.__name__, cls)})")
        self.fill(cls, obj)
        return obj

    def fill(self, cls: type[Struct], obj: str) -> None:
        """Emit the reading of a struct's fields into `obj`; a run may still be pending."""
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
            tail = "string_length_tail" if fixed == "h" else "uvarint_tail"
            if isinstance(field.kind, wire.RecordData):
                # Records seldom fit 126 bytes: read a second byte in line too.
                second = self.local("c")
                self.emit(f"if {size} > 127:")
                self.emit(f"    {second} = view[pos]")
                self.emit(f"    if {second} < 128: {size} += {second} - 1 << 7; pos += 1")
                self.emit(f"    else: {size}, pos = {tail}(view, pos, {size})")
            else:
                self.emit(f"if {size} > 127: {size}, pos = {tail}(view, pos, {size})")
        else:
            self.run.append((fixed, 2 if fixed == "h" else 4, size))
            self.flush()
        return size

    def blob(self, field: Field, target: str, title: str, nullable: bool) -> None:
        size = self.length(field, "h" if field.kind is str else "i")
        minus = " - 1" if self.compact(field) else ""
        stop = self.local("e")
        if nullable:
            self.emit(f"if {size} {'== 0' if self.compact(field) else '< 0'}:")
            self.emit(f"    {target} = None")
            self.emit("else:")
            self.depth += 1
            self.emit(f"{stop} = pos + {size}{minus}")
            self.emit(f"if {stop} > end: bad_length({title!r}, {size}{minus})")
        else:
            # Null would end before it starts.
            self.emit(f"{stop} = pos + {size}{minus}")
            self.emit(f"if not pos <= {stop} <= end: bad_length({title!r}, {size}{minus})")
        value = f"view[pos:{stop}]"
        if self.zero_copy and not isinstance(field.kind, wire.RecordData):
            value += ".tobytes()"
        if field.kind is str:
            value += ".decode()"
        self.emit(f"{target} = {value}")
        self.emit(f"pos = {stop}")
        if nullable:
            self.depth -= 1

    def array(self, field: Field, target: str, title: str) -> None:
        if isinstance(field.kind, wire.Fixed):
            self.numbers(field, field.kind, target, title)
        elif field.struct is not None:
            self.structs(field, field.struct, target, title)
        else:
            self.blobs(field, target, title)

    def numbers(self, field: Field, kind: wire.Fixed, target: str, title: str) -> None:
        size = self.length(field, "i")
        if self.compact(field):
            self.emit(f"{size} -= 1")
        nullable = field.nullable(self.version)
        if nullable:
            self.emit(f"if {size} < 0:")
            self.emit(f"    {target} = None")
            self.emit("else:")
            self.depth += 1
        stop = self.local("e")
        self.emit(f"{stop} = pos + {size} * {kind.size}")
        self.emit(f"if not pos <= {stop} <= end: bad_length({title!r}, {size})")
        self.names["unpack_from"] = struct.unpack_from
        few = f"{self.small_arrays(kind, 'unpack_from')}[{size}](view, pos)"
        many = f"unpack_from('>' + {kind.format!r} * {size}, view, pos)"
        self.emit(f"{target} = [*({few} if {size} < {SMALL_ARRAY} else {many})]")
        self.emit(f"pos = {stop}")
        if nullable:
            self.depth -= 1

    def structs(self, field: Field, cls: type[Struct], target: str, title: str) -> None:
        """All elements are made at once and then filled. A lone element, as in the usual request with one topic and
        one partition, needs no check of the count: reading past the end fails."""
        size = self.length(field, "i")
        items, item = self.local("v"), self.local("o")
        made = self.name("T_" + cls.__name__, cls)
        nullable = field.nullable(self.version)
        if self.compact(field):
            self.emit(f"{size} -= 1")
        self.emit(f"if {size} == 1:")
        self.emit(f"    {items} = [new({made})]")
        self.emit(f"elif {size} > 0:")
        self.emit(f"    if {size} * {self.least(field)} > end - pos: bad_length({title!r}, {size})")
        self.emit(f"    {items} = [*map(new, repeat({made}, {size}))]")
        self.emit(f"elif {size} == 0:")
        self.emit(f"    {items} = []")
        self.emit("else:")
        self.emit(f"    {items} = None" if nullable else f"    bad_null({title!r})")
        self.emit(f"{target} = {items}")
        self.emit(f"for {item} in {items}{' or ()' if nullable else ''}:")
        self.depth += 1
        self.fill(cls, item)
        self.flush()
        self.depth -= 1

    def blobs(self, field: Field, target: str, title: str) -> None:
        size = self.length(field, "i")
        items, item = self.local("v"), self.local("s")
        self.emit(f"if {size} {'== 0' if self.compact(field) else '< 0'}:")
        self.emit(f"    {target} = None" if field.nullable(self.version) else f"    bad_null({title!r})")
        self.emit("else:")
        self.depth += 1
        if self.compact(field):
            self.emit(f"{size} -= 1")
        self.emit(f"if {size} * {self.least(field)} > end - pos: bad_length({title!r}, {size})")
        self.emit(f"{items} = []")
        self.emit(f"for _ in range({size}):")
        self.depth += 1
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
