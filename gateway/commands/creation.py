"""The statement that makes a table or a view: the gateway reads it, and makes the same of it.

Of a table that was registered it makes an empty one of the same columns: where files lie stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.commands.relations import RelationInfo, RelationType
from gateway.sql.dialects.names import HIVES
from gateway.statements.statement import Statement
from metastore.records import View
from selector.quoting import spark_name, spark_string

REGISTERED = "-- Its files lie elsewhere and are registered (POST /v1/tables); this makes an empty table like it.\n"


def statement_that_makes(relation: RelationInfo, asked: Statement, *, lists_columns: bool) -> str:
    """Return CREATE TABLE or CREATE VIEW, with a word in front about what the statement does not say.

    asked: in whose dialect it is. lists_columns: the columns of a view are named, as its query does not select ``*``.
    """
    if relation.view is not None:
        return "".join(_of_view(relation, relation.view, asked, lists_columns=lists_columns))
    return "".join(_of_table(relation, hives=asked.dialect in HIVES))


def _of_table(relation: RelationInfo, *, hives: bool) -> Iterator[str]:
    """Yield the parts; Hive and Impala have partition columns, with their types, apart from the others."""
    if relation.type is RelationType.EXTERNAL:
        yield REGISTERED
    yield f"CREATE TABLE {_name(relation)} (\n  "
    defined = {
        column.name: f"{spark_name(column.name)} {column.data_type}{_comment(relation.comment_on(column))}"
        for column in relation.columns
    }
    apart = relation.partition_columns if hives else ()
    yield ",\n  ".join(text for name, text in defined.items() if name not in apart)
    yield ")"
    if not hives:
        yield f"\nUSING {relation.format}"
    if relation.partition_columns:
        names = [defined[name] if hives else spark_name(name) for name in relation.partition_columns]
        yield f"\nPARTITIONED BY ({', '.join(names)})"
    if relation.annotations.comment:
        yield f"\nCOMMENT {spark_string(relation.annotations.comment)}"
    if hives:
        yield f"\nSTORED AS {(relation.format or '').upper()}"
    yield _properties(relation.annotations.properties)


def _of_view(relation: RelationInfo, view: View, asked: Statement, *, lists_columns: bool) -> Iterator[str]:
    if view.dialect != asked.dialect:
        yield f"-- Its query is in the dialect {view.dialect}.\n"
    if view.database != asked.database:
        yield f"-- Bare names in it are of the database {view.database}.\n"
    yield f"CREATE {'TEMPORARY ' if view.temporary else ''}VIEW {_name(relation)}"
    if lists_columns:
        names = [spark_name(each.name) + _comment(relation.comment_on(each)) for each in relation.columns]
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
    told = (f"{spark_string(key)} = {spark_string(value)}" for key, value in sorted(properties.items()))
    return f"\nTBLPROPERTIES ({', '.join(told)})"
