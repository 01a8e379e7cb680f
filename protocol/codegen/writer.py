"""What writing an encode and a decode function has in common: lines, names, and runs of fixed-width values."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from struct import Struct as Packer
from typing import Any, Final

from pylogd.protocol import wire
from pylogd.protocol.schema import Field, Message, Struct, fields

# Arrays of numbers up to this count use a ready-made Struct; longer ones make theirs.
SMALL_ARRAY: Final = 16


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
            self.names[name] = tuple(getattr(Packer(">" + kind.format * n), method) for n in range(SMALL_ARRAY))
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
