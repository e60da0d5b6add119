"""Types of columns: the table of what each is called everywhere, types as values, and the text they are read from.

A new type is one more row of the table. Nothing here knows Arrow: ``engines/arrow_types.py`` makes its types of the
table's names. START HERE: kinds.py
"""

from selector.types.data_type import (
    MAX_PRECISION,
    DataType,
    Field,
    InvalidType,
    NoSuchType,
    array,
    decimal,
    decimal_digits,
    map_of,
    struct,
    value_bytes,
)
from selector.types.kinds import (
    BITS,
    BY_AVRO,
    BY_NAME,
    FLOATING,
    MISTAKEN,
    MOMENTS,
    VALUE_BYTES,
    WHOLE,
    DriverType,
    Group,
    Jdbc,
    Kind,
    TypeRow,
    kind_named,
    names_of,
)
from selector.types.parsing import MAX_CHARACTERS, MAX_DEPTH, hive_name, parse, parse_at

__all__ = [
    "BITS",
    "BY_AVRO",
    "BY_NAME",
    "FLOATING",
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "MAX_PRECISION",
    "MISTAKEN",
    "MOMENTS",
    "VALUE_BYTES",
    "WHOLE",
    "DataType",
    "DriverType",
    "Field",
    "Group",
    "InvalidType",
    "Jdbc",
    "Kind",
    "NoSuchType",
    "TypeRow",
    "array",
    "decimal",
    "decimal_digits",
    "hive_name",
    "kind_named",
    "map_of",
    "names_of",
    "parse",
    "parse_at",
    "struct",
    "value_bytes",
]
