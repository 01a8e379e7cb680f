"""Writes the source of a message's encode function."""

from __future__ import annotations

import struct

from pylogd.protocol import wire
from pylogd.protocol.codegen.writer import SMALL_ARRAY, Writer
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import DEFAULT, Field, Message, Struct, fields, shared_default


def unsupported(name: str, field: str, version: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} version {version} cannot carry a {field}")


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
            self.emit(f"    {self.buf} += {packers}[{count}](*{held}) if {count} < {SMALL_ARRAY} else {many}")
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
