"""Tables that are made or dropped, in the words of Spark's, Hive's and Impala's users.

CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t [(c type [COMMENT '...'], ...)] [USING | STORED AS parquet | orc]
[PARTITIONED BY (c [type], ...)] [COMMENT '...'] [TBLPROPERTIES | OPTIONS ('k' = 'v', ...)] [AS query]
CREATE TABLE [IF NOT EXISTS] t LIKE s [STORED AS ...] [TBLPROPERTIES (...)]
CREATE [EXTERNAL] TABLE [IF NOT EXISTS] t [(c type, ...)] [PARTITIONED BY (c [type], ...)] [USING | STORED AS ...]
[ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' | SERDE '...'] LOCATION '/folder'
DROP TABLE [IF EXISTS] t [PURGE]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import FORMATS, OPTIONS, Column, InvalidTable, require_options
from gateway.errors import NotAllowed, SyntaxInvalid, TableExists, UnknownColumn, UnknownTable
from gateway.sql.commands.definitions import RegisterTable
from gateway.sql.commands.parsing.view_parsing import ViewReader
from gateway.sql.commands.writes import TABLE_FORMATS, CreateTable, DropTable
from gateway.sql.dialects.names import IMPALA
from gateway.sql.names import did_you_mean
from gateway.sql.nodes import position_at
from metastore.records import Annotations
from selector.quoting import InvalidName, require_name
from selector.types import DataType, InvalidType, Kind, parse_at

_TYPE_ENDS = frozenset({"NOT", "NULL", "DEFAULT", "GENERATED", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK"})
_FORMATS = {**{name: name for name in FORMATS}, "textfile": "csv", "jsonfile": "json"}  # as people call them
_SERDES = {  # by the last part of the class's name
    "opencsvserde": "csv",
    "lazysimpleserde": "csv",
    "parquethiveserde": "parquet",
    "orcserde": "orc",
    "jsonserde": "json",
    "avroserde": "avro",
}
_SERDE_OPTIONS = {"separatorchar": "delimiter", "field.delim": "delimiter", "serialization.format": ""}
_HEADER_LINES = "skip.header.line.count"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column as it is told. type: None where only its name is. where: it stands."""

    name: str
    type: DataType | None
    comment: str
    where: Token


@dataclass(slots=True)
class _Clauses:
    """What stands between a new table's name and its query, as far as it is read. format_at: where that is named."""

    format: str | None = None
    format_at: Token | None = None
    location: str | None = None
    folders: tuple[ColumnDefinition, ...] = ()
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    options_at: Token | None = None


class TableReader(ViewReader):
    """Reads statements that make or drop a table; those about views, too."""

    def _create(self) -> CreateTable | RegisterTable:
        where = self._token()
        replace = self._words("OR", "REPLACE")
        temporary = self._token()
        if self._words("TEMPORARY") or self._words("TEMP"):
            message = "There are no temporary tables; make a TEMPORARY VIEW, or a table that is dropped later."
            raise NotAllowed(message, self._position(temporary))
        external = self._words("EXTERNAL")
        self._need("TABLE")
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        if replace and (if_not_exists or external):
            what = "IF NOT EXISTS" if if_not_exists else "EXTERNAL"
            raise NotAllowed(f"OR REPLACE does not go with {what}.", self._position(where))
        where = self._token()
        table = self._new_name()
        known = table in self._catalog and not if_not_exists and not replace
        if table in self._views or known:
            what = "view" if table in self._views else "table"
            raise TableExists(f"There is a {what} {table} already.", self._position(where))
        like = self._like(table) if self._words("LIKE") else None
        columns = self._definitions(types_needed=True) if self._sign(TokenType.L_PAREN) else ()
        clauses = self._clauses()
        if clauses.location is not None or external:
            return self._registered(table, columns, clauses, where, if_not_exists=if_not_exists, replace=replace)
        format = self._made_format(clauses, like)
        query = None
        if like is None and (self._words("AS") or self._starts_query() or self._nested()):
            where = self._token()
            query = self._query()
            if columns:
                raise NotAllowed("A table made from a query has the query's columns.", self._position(where))
        else:
            self._end()
        told = like.columns if like is not None else _columns((*columns, *clauses.folders))
        folders = like.partition_columns if like is not None else tuple(each.name for each in clauses.folders)
        if query is None:
            if not told:
                self._unexpected("a list of columns or a query")
            self._check_folders(folders, told)
        annotations = Annotations(clauses.comment, clauses.properties, _comments((*columns, *clauses.folders)))
        return CreateTable(table, query, told, folders, format, if_not_exists, replace, annotations)

    def _like(self, table: str) -> CreateTable:
        """Read the name of a table or a view, and return an empty table like it, under another name."""
        name = self._shown()
        view = self._views.get(name)
        if view is not None:
            return CreateTable(table, None, view.columns)
        source = self._catalog[name]
        format = source.format if source.format in TABLE_FORMATS else TABLE_FORMATS[0]
        return CreateTable(table, None, source.columns, source.partition_columns, format)

    def _made_format(self, clauses: _Clauses, like: CreateTable | None) -> str:
        if clauses.options_at is not None and clauses.options:
            message = f"{', '.join(clauses.options)} say how text is read, and tables are not made as text."
            raise NotAllowed(message, self._position(clauses.options_at))
        if clauses.format is None:
            return like.format if like is not None else TABLE_FORMATS[0]
        if clauses.format not in TABLE_FORMATS:
            assert clauses.format_at is not None
            raise NotAllowed(
                f"Tables are made in {' or '.join(TABLE_FORMATS)}, not in {clauses.format_at.text.lower()}; files that "
                "lie elsewhere can be that: add LOCATION.",
                self._position(clauses.format_at),
            )
        return clauses.format

    def _registered(
        self,
        table: str,
        columns: tuple[ColumnDefinition, ...],
        clauses: _Clauses,
        where: Token,
        *,
        if_not_exists: bool,
        replace: bool,
    ) -> RegisterTable:
        """Return a table over files that lie somewhere."""
        if clauses.location is None:
            message = "An EXTERNAL table needs a LOCATION; without EXTERNAL it is made in the gateway's warehouse."
            raise NotAllowed(message, self._position(where))
        if replace:
            message = "A table over files of others is not replaced; DROP it first, which leaves the files."
            raise NotAllowed(message, self._position(where))
        if self._more():
            message = "A table with a LOCATION has that folder's rows; leave the query or the LOCATION away."
            raise NotAllowed(message, self._position(self._token()))
        self._end()
        annotations = Annotations(clauses.comment, clauses.properties, _comments((*columns, *clauses.folders)))
        format = clauses.format or ("csv" if clauses.options else None)
        options = dict(clauses.options)
        header_lines = clauses.properties.get(_HEADER_LINES)
        if format == "csv" and header_lines is not None:
            if header_lines not in ("0", "1"):
                raise NotAllowed(f"{_HEADER_LINES} is 0 or 1 here.", self._position(where))
            options["header"] = "true" if header_lines == "1" else "false"
        if options:
            try:
                require_options(format or "parquet", options)
            except InvalidTable as error:
                at = clauses.options_at or where
                raise NotAllowed(f"{str(error)[:1].upper()}{str(error)[1:]}.", self._position(at)) from error
        told = _columns((*columns, *clauses.folders))
        folders = tuple(each.name for each in clauses.folders)
        if told:
            self._check_folders(folders, told)
        return RegisterTable(table, clauses.location, format, told, folders, options, annotations, if_not_exists)

    def _clauses(self) -> _Clauses:
        found = _Clauses()
        while True:
            at = self._token()
            if self._words("USING") or self._words("STORED", "AS"):
                found.format_at = self._token()
                found.format = self._format()
            elif self._words("PARTITIONED", "BY"):
                self._need_sign(TokenType.L_PAREN, "(")
                found.folders = self._definitions(types_needed=False)
            elif self._words("COMMENT"):
                found.comment = self._text("a text")
            elif self._words("TBLPROPERTIES"):
                found.properties |= self._properties()
            elif self._words("LOCATION"):
                found.location = self._text("a folder")
            elif self._words("ROW", "FORMAT"):
                found.options_at = at
                self._row_format(found)
            elif self._words("OPTIONS") or self._words("WITH", "SERDEPROPERTIES"):
                found.options_at = at
                self._reading_options(found, at)
            elif self._token().text.upper() in ("CLUSTERED", "CLUSTER", "SORTED", "SORT", "SKEWED", "DISTRIBUTE"):
                message = "Files of tables are not sorted or in buckets here; leave this clause away."
                raise NotAllowed(message, self._position(at))
            else:
                return found

    def _format(self) -> str:
        where = self._token()
        if self._words("INPUTFORMAT"):
            message = f"Name the format of the files instead: {', '.join(FORMATS)}."
            raise NotAllowed(message, self._position(where))
        name = self._name().lower()
        if name not in _FORMATS:
            known = f"Tables are made in {' or '.join(TABLE_FORMATS)}"
            raise NotAllowed(f"{known}, not in {name}.", self._position(where))
        return _FORMATS[name]

    def _row_format(self, found: _Clauses) -> None:
        """Read ROW FORMAT: how the text of files that are there is to be read."""
        where = self._token()
        if self._words("SERDE"):
            name = self._text("the name of a class")
            format = _SERDES.get(name.rpartition(".")[2].lower())
            if format is None:
                raise NotAllowed(f"Files are not read by {name[:200]} here.", self._position(where))
            found.format, found.format_at = format, where
            return
        self._need("DELIMITED")
        found.format, found.format_at = "csv", where
        while True:
            where = self._token()
            if self._words("FIELDS", "TERMINATED", "BY"):
                found.options["delimiter"] = _unescaped(self._text("a delimiter"))
            elif self._words("LINES", "TERMINATED", "BY"):
                if _unescaped(self._text("a line's end")) not in ("\n", "\r\n"):
                    raise NotAllowed("Lines end with \\n here.", self._position(where))
            elif self._words("NULL", "DEFINED", "AS"):
                if self._text("a text"):
                    raise NotAllowed("NULL is the empty text here.", self._position(where))
            elif self._words("ESCAPED") or self._words("COLLECTION") or self._words("MAP"):
                message = "Text is read as CSV here: fields in double quotes, no escapes, no lists or maps."
                raise NotAllowed(message, self._position(where))
            else:
                return

    def _reading_options(self, found: _Clauses, where: Token) -> None:
        """Read how text is to be read, and the place where it lies, where that is among it."""
        for key, value in self._properties().items():
            name = key.lower()
            if name == "path":
                found.location = value
            elif name in OPTIONS["csv"]:
                found.options["delimiter" if name == "sep" else name] = _unescaped(value)
            elif name in _SERDE_OPTIONS:
                if _SERDE_OPTIONS[name]:
                    found.options[_SERDE_OPTIONS[name]] = _unescaped(value)
            elif name == "quotechar" or name == "quote":
                if value != '"':
                    raise NotAllowed("Fields of text stand in double quotes here.", self._position(where))
            else:
                known = ", ".join(("path", *OPTIONS["csv"]))
                raise NotAllowed(f"{key[:200]} is no option here; there are {known}.", self._position(where))

    def _definitions(self, *, types_needed: bool) -> tuple[ColumnDefinition, ...]:
        """Read the rest of a list of columns; a type that is not needed and not there is None."""
        columns: dict[str, ColumnDefinition] = {}
        while True:
            where = self._token()
            name = self._column_name()
            if name.lower() in columns:
                raise NotAllowed(f"There are two columns {name}.", self._position(where))
            columns[name.lower()] = self._definition(name, where, type_needed=types_needed)
            if self._sign(TokenType.R_PAREN):
                return tuple(columns.values())
            self._need_sign(TokenType.COMMA, ", or )")

    def _column_name(self) -> str:
        where = self._token()
        name = self._name()
        try:
            require_name(name)
        except InvalidName as error:
            raise NotAllowed(f"The name of a column {error}.", self._position(where)) from error
        return name

    def _definition(self, name: str, where: Token, *, type_needed: bool) -> ColumnDefinition:
        """Read what stands behind a column's name."""
        found = self._type(needed=type_needed)
        comment = self._text("a text") if self._words("COMMENT") else ""
        if self._token().text.upper() in _TYPE_ENDS:
            raise NotAllowed("Columns have no constraints or defaults here.", self._position(self._token()))
        return ColumnDefinition(name, found, comment, where)

    def _type(self, *, needed: bool) -> DataType | None:
        """Read a type."""
        where = self._token()
        if not needed and where.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            return None
        try:
            found, end = parse_at(self._sql, where.start)
        except InvalidType as error:
            raise SyntaxInvalid(f"Syntax error: {error.message}.", position_at(self._sql, error.at)) from error
        while self._at < len(self._tokens) and self._token().start < end:
            self._at += 1
        if self._tokens[self._at - 1].end >= end:  # a word of more than the type
            raise SyntaxInvalid("Syntax error: a type is expected here.", self._position(where))
        return DataType(Kind.STRING) if found.is_text else found  # lengths are not checked, so none is promised

    def _check_folders(self, folders: Sequence[str], columns: Sequence[Column]) -> None:
        known = [column.name.lower() for column in columns]
        for name in folders:
            if name.lower() not in known:
                raise UnknownColumn(f"There is no column {name}{did_you_mean(name, known)}")
        if len(folders) == len(columns):
            raise NotAllowed("A table needs a column that is not a folder.")

    def _drop(self) -> DropTable:
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        table = self._full_name()
        self._words("PURGE")
        self._end()
        if table in self._views and not (if_exists and self._dialect == IMPALA):
            raise NotAllowed(f"{table} is a view: DROP VIEW {table}.", self._position(where))
        if table not in self._catalog and not if_exists:
            raise UnknownTable(f"There is no table {table}{did_you_mean(table, self._catalog)}", self._position(where))
        return DropTable(table, existing=table in self._catalog)


def _columns(told: Sequence[ColumnDefinition]) -> tuple[Column, ...]:
    return tuple(Column(each.name, str(each.type)) for each in told if each.type is not None)


def _comments(told: Sequence[ColumnDefinition]) -> dict[str, str]:
    return {each.name: each.comment for each in told if each.comment}


def _unescaped(text: str) -> str:
    """Return a delimiter as it is meant: Hive's users write a tabulator as an escape, or as an octal number."""
    if text in ("\\t", "\\n", "\\r"):
        return {"t": "\t", "n": "\n", "r": "\r"}[text[1]]
    if len(text) == 4 and text[0] == "\\" and all(digit in "01234567" for digit in text[1:]):
        return chr(int(text[1:], 8))
    return text
