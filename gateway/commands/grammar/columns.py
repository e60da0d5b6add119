"""Columns with their types, as CREATE TABLE and ALTER TABLE define them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot.tokenizer_core import Token, TokenType

from gateway.commands.grammar.reader import Reader
from selector.quoting import InvalidName, require_name
from selector.types import DataType, InvalidType, Kind, parse_at
from sql.errors import NotAllowed, SyntaxInvalid
from sql.nodes import position_at
from sql.tables import Column

_TYPE_ENDS = frozenset({"NOT", "NULL", "DEFAULT", "GENERATED", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK"})


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """Definition of one column. type: None where the statement only names it. token: the column's name."""

    name: str
    type: DataType | None
    comment: str
    token: Token


def columns_of(definitions: Sequence[ColumnDefinition]) -> tuple[Column, ...]:
    """Return the columns that have a type."""
    return tuple(Column(one.name, str(one.type)) for one in definitions if one.type is not None)


def comments_of(definitions: Sequence[ColumnDefinition]) -> dict[str, str]:
    """Return the comments of columns by their names."""
    return {one.name: one.comment for one in definitions if one.comment}


def column_definitions(reader: Reader, *, types_needed: bool) -> tuple[ColumnDefinition, ...]:
    """Read the rest of a list of columns. types_needed: none of them may stand without a type."""
    definitions = reader.rest_of_list(partial(column_definition, reader, type_needed=types_needed))
    names: set[str] = set()
    for definition in definitions:
        if definition.name.lower() in names:
            raise NotAllowed(f"There are two columns {definition.name}.", reader.position(definition.token))
        names.add(definition.name.lower())
    return tuple(definitions)


def column_definition(reader: Reader, *, type_needed: bool) -> ColumnDefinition:
    """Read a column's name with its type and comment."""
    token = reader.peek()
    name = column_name(reader)
    data_type = column_type(reader, needed=type_needed)
    comment = reader.text("a text") if reader.accept("COMMENT") else ""
    if reader.next_word in _TYPE_ENDS:
        raise NotAllowed("Columns have no constraints or defaults here.", reader.position(reader.peek()))
    return ColumnDefinition(name, data_type, comment, token)


def column_name(reader: Reader) -> str:
    """Read the name of a new column."""
    token = reader.peek()
    name = reader.name()
    try:
        require_name(name)
    except InvalidName as error:
        raise NotAllowed(f"The name of a column {error}.", reader.position(token)) from error
    return name


def column_type(reader: Reader, *, needed: bool) -> DataType | None:
    """Read a type; None: there is none, and none is needed."""
    token = reader.peek()
    if not needed and token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
        return None
    try:
        data_type, end = parse_at(reader.sql, token.start)
    except InvalidType as error:
        raise SyntaxInvalid(f"Syntax error: {error.message}.", position_at(reader.sql, error.at)) from error
    while reader.at < len(reader.tokens) and reader.peek().start < end:
        reader.at += 1
    if reader.tokens[reader.at - 1].end >= end:  # a word of more than the type
        raise SyntaxInvalid("Syntax error: a type is expected here.", reader.position(token))
    is_plain = data_type == data_type.with_plain_texts() or data_type.kind in (Kind.STRING, Kind.VARCHAR)
    if data_type.kind is Kind.CHAR or not is_plain:
        raise NotAllowed(
            "CHAR(n), and lengths and collations of texts inside of other types, are not kept here: use VARCHAR(n) "
            "or STRING.",
            reader.position(token),
        )
    return data_type
