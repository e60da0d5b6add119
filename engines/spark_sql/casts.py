"""Values of a statement in a column's type, in Spark's words."""

from __future__ import annotations

from collections.abc import Iterator

from selector.quoting import spark_string
from selector.types import DataType, Kind
from sql.tables import Column

_NAMES_IN_TYPE = r"(?<=[<,])[^:<>,]+(?=:)"


def fitted(value: str, column: Column) -> str:
    """Return a value in a column's type. Spark casts fields by place: the same names in another order are an error."""
    cast = f"CAST({value} AS {column.type.spark()})"
    names = list(_field_names(column.type))
    if len(names) < 2:
        return cast
    declared = f"array({', '.join(map(spark_string, names))})"
    actual = f"regexp_extract_all(lower(typeof({value})), {spark_string(_NAMES_IN_TYPE)}, 0)"
    is_mixed_up = f"{actual} <> {declared} AND array_sort({actual}) = array_sort({declared})"
    message = f"The fields of a value for {column.name} are in another order than the column's: {', '.join(names)}."
    return f"IF({is_mixed_up}, raise_error({spark_string(message)}), {cast})"


def _field_names(whole: DataType) -> Iterator[str]:
    """Yield the names of all fields in structs of a type, in the order in which Spark writes them."""
    for field in whole.fields:
        if whole.kind is Kind.STRUCT:
            yield field.name.lower()
        yield from _field_names(field.type)
