"""Results of Spark Connect in the types that all engines return, and values that Arrow's Python cannot hold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import pyarrow as pa

from engines.arrow_leaves import with_leaves
from engines.arrow_types import COLLATION
from selector.quoting import spark_name, spark_string
from selector.types.parsing import MAX_TIME_PRECISION

with warnings.catch_warnings():
    # pyspark 4.3 says at import that it was not tested with pandas 3; no pandas is used here.
    warnings.simplefilter("ignore", FutureWarning)
    import pyspark.sql.connect.proto as pb2
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import (
        ArrayType,
        CalendarIntervalType,
        MapType,
        NullType,
        StringType,
        StructType,
        TimeType,
        VariantType,
        YearMonthIntervalType,
    )
    from pyspark.sql.types import DataType as SparkType

_MONTHS = 21  # Arrow's id of intervals in months, whose arrays Python cannot create
_READABLE_MONTHS = pa.time32("s")  # has the same size; Spark's times have another type


class TextsInResult(Exception):
    """Columns of a result have no Arrow type; their values become texts.

    These are variants, calendar intervals and keys of the type void, whose maps crash Arrow.

    names: of all columns.
    texts: by number of such a column, an expression with its values as texts, over columns named by ``_place``.
    """

    def __init__(self, names: Sequence[str], texts: Mapping[int, str]) -> None:
        super().__init__("columns of a result have no Arrow type")
        self.names = tuple(names)
        self.texts = texts


def as_texts(plan: pb2.Plan, columns: TextsInResult) -> pb2.Plan:
    """Return a plan with the same columns, with texts for values without an Arrow type."""
    places = [_place(number) for number in range(len(columns.names))]
    written = pb2.Plan()
    project = written.root.to_df.input.project
    project.input.to_df.input.CopyFrom(plan.root)
    project.input.to_df.column_names.extend(places)
    for number, place in enumerate(places):
        alias = project.expressions.add().alias
        alias.name.append(place)
        if number in columns.texts:
            alias.expr.expression_string.expression = columns.texts[number]
        else:
            alias.expr.unresolved_attribute.unparsed_identifier = place
    written.root.to_df.column_names.extend(columns.names)
    return written


def _place(number: int) -> str:
    return f"c{number}"


def _has_no_arrow_type(kind: SparkType) -> bool:
    match kind:
        case ArrayType():
            return _has_no_arrow_type(kind.elementType)
        case MapType():
            return isinstance(kind.keyType, NullType) or any(map(_has_no_arrow_type, (kind.keyType, kind.valueType)))
        case StructType():
            return any(_has_no_arrow_type(field.dataType) for field in kind)
    return isinstance(kind, VariantType | CalendarIntervalType)


def _text_of(value: str, kind: SparkType, depth: int = 0) -> str:
    """Return an expression for a value, with texts for parts without an Arrow type."""
    if not _has_no_arrow_type(kind):
        return value
    item = f"x{depth}"
    match kind:
        case ArrayType():
            return f"transform({value}, {item} -> {_text_of(item, kind.elementType, depth + 1)})"
        case MapType():
            content = _text_of(f"{item}.value", kind.valueType, depth + 1)
            if isinstance(kind.keyType, NullType):
                key = f"CAST({item}.key AS STRING)"
            else:
                key = _text_of(f"{item}.key", kind.keyType, depth + 1)
            return f"map_from_entries(transform(map_entries({value}), {item} -> struct({key}, {content})))"
        case StructType():
            fields = ", ".join(
                f"{spark_string(field.name)}, {_text_of(f'{value}.{spark_name(field.name)}', field.dataType, depth)}"
                for field in kind
            )
            return f"IF({value} IS NULL, NULL, named_struct({fields}))"
    return f"to_json({value})" if isinstance(kind, VariantType) else f"CAST({value} AS STRING)"


def arrow_schema(struct: StructType) -> pa.Schema:
    """Return the nullable columns of a result. Raises TextsInResult."""
    texts = {
        number: _text_of(_place(number), field.dataType)
        for number, field in enumerate(struct.fields)
        if _has_no_arrow_type(field.dataType)
    }
    if texts:
        raise TextsInResult(struct.names, texts)
    return pa.schema([_field(field.name, field.dataType) for field in struct])


def _field(name: str, kind: SparkType) -> pa.Field:
    """Return a column of a result; the collation of a text is in its metadata."""
    field = pa.field(name, _arrow_type(kind))
    is_collated = isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()
    return field.with_metadata({COLLATION: kind.collation}) if is_collated else field


def _arrow_type(kind: SparkType) -> pa.DataType:
    """Return a type as all engines return it: a time has six digits, or nine for a precision above six."""
    match kind:
        case TimeType():
            return pa.time64("us" if kind.precision <= MAX_TIME_PRECISION else "ns")
        case YearMonthIntervalType():
            return pa.month_day_nano_interval()
        case ArrayType():
            return pa.list_(_part("element", kind.elementType, nullable=kind.containsNull))
        case MapType():
            key = pa.field("key", _arrow_type(kind.keyType), nullable=False)
            return pa.map_(key, _part("value", kind.valueType, nullable=kind.valueContainsNull))
        case StructType():
            return pa.struct([_part(field.name, field.dataType, nullable=field.nullable) for field in kind])
    return to_arrow_type(kind, timezone="UTC")


def _part(name: str, kind: SparkType, *, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(kind), nullable=nullable or isinstance(kind, NullType))


def as_batches(table: pa.Table, schema: pa.Schema) -> Sequence[pa.RecordBatch]:
    """Return the table's batches in exactly this schema."""
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    return batches if table.schema == schema else [_converted(batch, schema) for batch in batches]


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = batch.to_struct_array()
    if any(map(_has_months, batch.schema.types)):
        rows = rows.view(pa.struct([_without_months(field) for field in rows.type]))
    columns = [_of_type(column, wanted.type) for column, wanted in zip(rows.flatten(), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type != kind:
        column = with_leaves(column, _as_here, named=kind)
    return column if column.type == kind else column.cast(kind)


def _has_months(kind: pa.DataType) -> bool:
    return kind.id == _MONTHS or any(_has_months(kind.field(place).type) for place in range(kind.num_fields))


def _without_months(field: pa.Field) -> pa.Field:
    """Return a field with months in a type that Python can read, and that no other value has."""
    kind = field.type
    if kind.id == _MONTHS:
        return field.with_type(_READABLE_MONTHS)
    if not _has_months(kind):
        return field
    parts = [_without_months(kind.field(place)) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_without_months(kind.key_field), _without_months(kind.item_field)))
    return field.with_type(pa.struct(parts) if pa.types.is_struct(kind) else pa.list_(parts[0]))


def _as_here(leaf: pa.Array) -> pa.Array:
    """Return leaves in the types of ``_arrow_type``."""
    if leaf.type == _READABLE_MONTHS:
        months = leaf.cast(pa.int32()).to_pylist()
        return pa.array(
            [None if count is None else pa.MonthDayNano([count, 0, 0]) for count in months],
            pa.month_day_nano_interval(),
        )
    return leaf
