"""`python -m pylogd.protocol.codegen ProduceRequest 9` prints what encodes and decodes it."""

from __future__ import annotations

import sys

from pylogd.protocol.api import message_class
from pylogd.protocol.codegen.functions import source

name, version = sys.argv[1], int(sys.argv[2])
print(source(message_class(name), version))
