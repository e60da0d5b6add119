"""Clauses of CREATE TABLE between the table's columns and its query, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from gateway.commands.grammar.columns import ColumnDefinition, column_definition
from gateway.commands.grammar.reader import Reader
from selector.quoting import spark_name
from sql.errors import NotAllowed
from sql.tables import FORMATS, IDENTITY, LAKE_FORMATS, OPTIONS, PartitionBy

_FORMATS = {
    **{name: name for name in (*FORMATS, *LAKE_FORMATS)},
    "textfile": "csv",
    "jsonfile": "json",
}  # as people call them
_SERDES = {  # by the last part of the class's name
    "opencsvserde": "csv",
    "lazysimpleserde": "csv",
    "parquethiveserde": "parquet",
    "orcserde": "orc",
    "jsonserde": "json",
    "avroserde": "avro",
}
_SERDE_OPTIONS = {"separatorchar": "delimiter", "field.delim": "delimiter", "serialization.format": ""}
TRANSFORMS = {
    **{f"{unit}{end}".upper(): unit for unit in ("year", "month", "day", "hour") for end in ("", "s")},
    **{name.upper(): name for name in ("bucket", "truncate")},
}
"""Words of Iceberg's partition transforms, with their names."""
_WITH_NUMBER = ("bucket", "truncate")
_SORTING = frozenset({"CLUSTERED", "CLUSTER", "SORTED", "SORT", "SKEWED", "DISTRIBUTE"})


@dataclass(slots=True)
class TableClauses:
    """Clauses as far as they are read. A token says where one stands, for errors that are found later."""

    format: str | None = None
    format_token: Token | None = None
    location: str | None = None
    folders: tuple[ColumnDefinition, ...] = ()
    partition_by: tuple[PartitionBy, ...] = ()
    transform_token: Token | None = None
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    options_token: Token | None = None


def read_clauses(reader: Reader) -> TableClauses:
    """Read clauses as long as there are any."""
    clauses = TableClauses()
    while True:
        token = reader.peek()
        if reader.accept("USING") or reader.accept("STORED", "AS"):
            clauses.format_token = reader.peek()
            clauses.format = _format(reader)
        elif reader.accept("PARTITIONED", "BY"):
            reader.expect_open()
            _partitions(reader, clauses)
        elif reader.accept("COMMENT"):
            clauses.comment = reader.text("a text")
        elif reader.accept("TBLPROPERTIES"):
            clauses.properties |= reader.properties()
        elif reader.accept("LOCATION"):
            clauses.location = reader.text("a folder")
        elif reader.accept("ROW", "FORMAT"):
            clauses.options_token = token
            _row_format(reader, clauses)
        elif reader.accept("OPTIONS") or reader.accept("WITH", "SERDEPROPERTIES"):
            clauses.options_token = token
            _reading_options(reader, clauses, token)
        elif reader.next_word in _SORTING:
            message = "Files of tables are not sorted or in buckets here; leave this clause away."
            raise NotAllowed(message, reader.position(token))
        else:
            return clauses


def _partitions(reader: Reader, clauses: TableClauses) -> None:
    """Read the rest of PARTITIONED BY: columns, with a type where they are new, and transforms of columns."""
    definitions: list[ColumnDefinition] = []

    def read_one() -> PartitionBy:
        token = reader.peek()
        transform = TRANSFORMS.get(reader.next_word)
        is_call = reader.has_ahead(1) and reader.tokens[reader.at + 1].token_type is TokenType.L_PAREN
        if transform is not None and is_call:
            clauses.transform_token = clauses.transform_token or token
            reader.skip()
            return _transformed(reader, transform, token)
        definition = column_definition(reader, type_needed=False)
        definitions.append(definition)
        return PartitionBy(definition.name)

    clauses.partition_by = tuple(reader.rest_of_list(read_one))
    names = [(one.column.lower(), one.transform) for one in clauses.partition_by]
    twice = next((name for at, (name, _) in enumerate(names) if names[at] in names[:at]), None)
    if twice is not None:
        raise NotAllowed(f"There are two partition columns {twice}.", reader.position(reader.tokens[reader.at - 1]))
    clauses.folders = tuple(definitions)


def partition_text(partition: PartitionBy) -> str:
    """Write a partition of a lake table as it is read, such as days(ts) or bucket(16, id)."""
    column, (name, _, number) = spark_name(partition.column), partition.transform.rstrip("]").partition("[")
    if name == IDENTITY:
        return column
    return f"{name}({number}, {column})" if name in _WITH_NUMBER else f"{name}s({column})"


def _transformed(reader: Reader, transform: str, token: Token) -> PartitionBy:
    """Read the arguments of a transform: days(ts), bucket(16, id)."""
    reader.expect_open()
    if transform in _WITH_NUMBER:
        number = reader.number()
        if number != int(number) or not 0 < number < 1 << 31:
            raise NotAllowed(f"{token.text} takes a whole number above 0.", reader.position(token))
        transform = f"{transform}[{int(number)}]"
        reader.expect_sign(TokenType.COMMA, ",")
    column = reader.name()
    reader.expect_close()
    return PartitionBy(column, transform)


def _format(reader: Reader) -> str:
    token = reader.peek()
    if reader.accept("INPUTFORMAT"):
        message = f"Name the format of the files instead: {', '.join(FORMATS)}."
        raise NotAllowed(message, reader.position(token))
    name = reader.name().lower()
    if name not in _FORMATS:
        raise NotAllowed(f"There is no format {name[:200]}; there are {', '.join(_FORMATS)}.", reader.position(token))
    return _FORMATS[name]


def _row_format(reader: Reader, clauses: TableClauses) -> None:
    """Read ROW FORMAT: how the text of existing files is to be read."""
    clauses.format_token = reader.peek()
    if reader.accept("SERDE"):
        name = reader.text("the name of a class")
        format = _SERDES.get(name.rpartition(".")[2].lower())
        if format is None:
            raise NotAllowed(f"Files are not read by {name[:200]} here.", reader.position(clauses.format_token))
        clauses.format = format
        return
    reader.expect("DELIMITED")
    clauses.format = "csv"
    while True:
        token = reader.peek()
        if reader.accept("FIELDS", "TERMINATED", "BY"):
            clauses.options["delimiter"] = _unescaped(reader.text("a delimiter"))
        elif reader.accept("LINES", "TERMINATED", "BY"):
            if _unescaped(reader.text("a line's end")) not in ("\n", "\r\n"):
                raise NotAllowed("Lines end with \\n here.", reader.position(token))
        elif reader.accept("NULL", "DEFINED", "AS"):
            if reader.text("a text"):
                raise NotAllowed("NULL is the empty text here.", reader.position(token))
        elif reader.accept_one("ESCAPED", "COLLECTION", "MAP"):
            message = "Text is read as CSV here: fields in double quotes, no escapes, no lists or maps."
            raise NotAllowed(message, reader.position(token))
        else:
            return


def _reading_options(reader: Reader, clauses: TableClauses, token: Token) -> None:
    """Read how text is to be read, and its folder, where that is among it."""
    for key, value in reader.properties().items():
        name = key.lower()
        if name == "path":
            clauses.location = value
        elif name in OPTIONS["csv"]:
            clauses.options["delimiter" if name == "sep" else name] = _unescaped(value)
        elif name in _SERDE_OPTIONS:
            if _SERDE_OPTIONS[name]:
                clauses.options[_SERDE_OPTIONS[name]] = _unescaped(value)
        elif name == "quotechar" or name == "quote":
            if value != '"':
                raise NotAllowed("Fields of text stand in double quotes here.", reader.position(token))
        else:
            names = ", ".join(("path", *OPTIONS["csv"]))
            raise NotAllowed(f"{key[:200]} is no option here; there are {names}.", reader.position(token))


def _unescaped(text: str) -> str:
    """Return a delimiter as it is meant: Hive's users write a tabulator as an escape, or as an octal number."""
    if text in ("\\t", "\\n", "\\r"):
        return {"t": "\t", "n": "\n", "r": "\r"}[text[1]]
    if len(text) == 4 and text[0] == "\\" and all(digit in "01234567" for digit in text[1:]):
        return chr(int(text[1:], 8))
    return text
