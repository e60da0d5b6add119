"""Plans of statements, as they are sent to Spark."""

from __future__ import annotations

from engines.spark_sql.connect import statement_plan
from sql.tables import Column, TableSource


def test_a_tables_schema_has_no_lengths_of_texts_which_spark_refuses() -> None:
    columns = (Column("c", "char(5)"), Column("v", "array<varchar(3)>"), Column("t", "time(2)"))
    plan = statement_plan("SELECT * FROM `t`", [TableSource("t", "/t", "parquet", columns)])

    (reference,) = plan.root.with_relations.references
    read = reference.subquery_alias.input.project.input.read
    assert read.data_source.schema == "`c` string, `v` array<string>, `t` time(2)"
