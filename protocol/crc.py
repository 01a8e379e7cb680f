"""CRC-32C, which record batches and producer snapshots carry, at memory speed.

The package `crc32c` asks the installed metadata for its own version when it is imported, which takes longer than the
rest of our start-up together. So its extension module is loaded without it; where that is not possible, with it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Crc32c = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Crc32c:
    package = find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            function: Crc32c = module.crc32c
            return function
    from crc32c import crc32c as slow_to_import

    return slow_to_import


crc32c: Crc32c = _load()
