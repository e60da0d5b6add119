"""Statements that make a table or a view: the gateway reads them, and makes the same of them.

SHOW CREATE TABLE | VIEW t

Of a table that was registered the statement makes an empty one of the same columns: where files lie stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gateway.commands.command import ShowCommand, TableCommand
from gateway.commands.ddl.table_clauses import partition_text
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import RelationInfo, RelationType, described
from gateway.commands.services import CommandServices
from gateway.statistics.tables import texts_of
from selector.quoting import spark_name, spark_string
from sql import parsing
from sql.dialects.names import HIVES, IMPALA
from sql.errors import AccessDenied
from sql.tables import View

if TYPE_CHECKING:
    from gateway.statements.statement import Statement

HEADINGS: Mapping[str, str] = {IMPALA: "result"}
REGISTERED = "-- Its files lie elsewhere and are registered (POST /v1/tables); this makes an empty table like it.\n"


@dataclass(frozen=True, slots=True)
class ShowCreate(ShowCommand, TableCommand):
    """Show the statement that makes such a table or view.

    lists_columns: it names the columns of a view, whose query does not select ``*``.
    """

    table: str
    lists_columns: bool = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return CREATE TABLE or CREATE VIEW, with a line in front about what the statement does not say."""
        relation = described(services, self.table)
        if relation.view is not None and not relation.view.sql:
            raise AccessDenied("The text of a view is shown to its owner, and to administrators.")
        if relation.view is not None:
            parts = _of_view(relation, relation.view, services.run.statement, lists_columns=self.lists_columns)
        else:
            parts = _of_table(relation, hives=services.dialect in HIVES)
        return texts_of((HEADINGS.get(services.dialect, "createtab_stmt"),), [["".join(parts)]])


def _of_table(relation: RelationInfo, *, hives: bool) -> Iterator[str]:
    """Yield the parts; Hive and Impala have partition columns, with their types, apart from the others."""
    if relation.type is RelationType.EXTERNAL:
        yield REGISTERED
    yield f"CREATE TABLE {_name(relation)} (\n  "
    defined = {
        column.name: f"{spark_name(column.name)} {column.declared_type}{_comment(relation.comment_on(column))}"
        for column in relation.columns
    }
    apart = relation.partition_columns if hives else ()
    yield ",\n  ".join(text for name, text in defined.items() if name not in apart)
    yield ")"
    if not hives:
        yield f"\nUSING {relation.format}"
    if relation.partition_by:
        yield f"\nPARTITIONED BY ({', '.join(map(partition_text, relation.partition_by))})"
    if relation.partition_columns:
        names = [defined[name] if hives else spark_name(name) for name in relation.partition_columns]
        yield f"\nPARTITIONED BY ({', '.join(names)})"
    if relation.annotations.comment:
        yield f"\nCOMMENT {spark_string(relation.annotations.comment)}"
    if hives:
        yield f"\nSTORED AS {(relation.format or '').upper()}"
    yield _properties(relation.annotations.properties)


def _of_view(relation: RelationInfo, view: View, statement: Statement, *, lists_columns: bool) -> Iterator[str]:
    if view.dialect != statement.dialect:
        yield f"-- Its query is in the dialect {view.dialect}.\n"
    if view.database != statement.database:
        yield f"-- Bare names in it are of the database {view.database}.\n"
    yield f"CREATE {'TEMPORARY ' if view.temporary else ''}VIEW {_name(relation)}"
    if lists_columns:
        names = [spark_name(column.name) + _comment(relation.comment_on(column)) for column in relation.columns]
        yield f" (\n  {f',{chr(10)}  '.join(names)})"
    if relation.annotations.comment:
        yield f"\nCOMMENT {spark_string(relation.annotations.comment)}"
    yield _properties(relation.annotations.properties)
    yield f"\nAS {view.sql}"


def _name(relation: RelationInfo) -> str:
    """Return the name with its database before it, so that it means the same in any session."""
    bare = spark_name(relation.name)
    return f"{spark_name(relation.database)}.{bare}" if relation.database else bare


def _comment(text: str) -> str:
    return f" COMMENT {spark_string(text)}" if text else ""


def _properties(properties: Mapping[str, str]) -> str:
    if not properties:
        return ""
    pairs = (f"{spark_string(key)} = {spark_string(value)}" for key, value in sorted(properties.items()))
    return f"\nTBLPROPERTIES ({', '.join(pairs)})"


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> ShowCreate | None:
    """Read SHOW CREATE."""
    if not reader.accept("SHOW", "CREATE"):
        return None
    if not reader.accept("VIEW"):
        reader.expect("TABLE")
    name = reader.relation()
    view = reader.views.get(name)
    return ShowCreate(name, lists_columns=view is None or not _selects_all(reader, view))


def _selects_all(reader: Reader, view: View) -> bool:
    """Tell whether a view's columns are those of a ``*``, so that they cannot have other names."""
    query, _ = parsing.parse(view.sql, view.dialect, reader.limits)
    return query.is_star
