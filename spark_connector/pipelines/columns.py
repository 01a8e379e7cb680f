"""How the columns of a table may change: new ones may come, null in older rows, and none changes its type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ColumnError(Exception):
    """A change that the rows already in the table do not allow; the message is for the user."""


def merge(known: StructType, wanted: StructType) -> StructType:
    """All columns: those of the table first, then the new ones; nullable all, because some rows lack them."""
    from pyspark.sql.types import StructField, StructType

    types = {field.name: field.dataType for field in known.fields}
    for field in wanted.fields:
        before = types.setdefault(field.name, field.dataType)
        if before != field.dataType:
            raise ColumnError(
                f"column {field.name} is {before.simpleString()} in the table and {field.dataType.simpleString()} now; "
                "expected the same type, or another name for the new column"
            )
    return StructType([StructField(name, kind, True) for name, kind in types.items()])
