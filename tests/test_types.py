"""A type of columns is one row of one table: the way of CONTRIBUTING.md is walked, and nobody else has such a list."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from TCLIService.ttypes import TTypeId  # type: ignore[import-untyped]

from engines.arrow_types import arrow_type, data_type
from gateway.drivers.jdbc import describe
from selector.types import (
    BY_AVRO,
    BY_NAME,
    DataType,
    Group,
    Jdbc,
    Kind,
    array,
    decimal,
    kind_named,
    map_of,
    parse,
    struct,
)
from tests.test_house import FILES, ROOT

TABLE = ROOT / "selector" / "types" / "kinds.py"

STRING, NUMBER = DataType(Kind.STRING), DataType(Kind.INT)
EXAMPLES = {
    **{kind: DataType(kind) for kind in Kind},
    Kind.CHAR: DataType(Kind.CHAR, 3),
    Kind.VARCHAR: DataType(Kind.VARCHAR, 20),
    Kind.TIME: DataType(Kind.TIME, 6),
    Kind.DECIMAL: decimal(12, 2),
    Kind.ARRAY: array(NUMBER),
    Kind.MAP: map_of(STRING, NUMBER),
    Kind.STRUCT: struct([("a", NUMBER)]),
}
AS_STRING = {Kind.CHAR, Kind.VARCHAR, Kind.TIME, Kind.VARIANT}  # what drivers do not know
NOT_IN_DUCKDB = {Kind.VOID, Kind.VARIANT}
NOT_IN_IMPALA = {*NOT_IN_DUCKDB, Kind.TIME}

# ---------------------------------------------------------------------- every row has all its names


@pytest.mark.parametrize("kind", Kind)
def test_a_type_has_all_its_names(kind: Kind) -> None:
    example = EXAMPLES[kind]
    assert parse(str(example)) == example
    assert kind_named(str(example)) is kind
    assert all(BY_NAME[name] is kind for name in kind.row.also)
    assert all(BY_AVRO[name] is kind for name in kind.row.avro)
    assert str(arrow_type(example)).startswith(kind.row.arrow)
    assert (kind.row.duckdb is None) == (kind in NOT_IN_DUCKDB)
    assert (kind.row.impala is None) == (kind in NOT_IN_IMPALA)
    assert (kind.row.driver is None) == (kind in AS_STRING)
    assert (kind.row.bits is None) == (kind.row.digits is None) == (kind.row.group is not Group.WHOLE)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in AS_STRING])
def test_rows_come_back_as_the_type_that_they_were(kind: Kind) -> None:
    assert data_type(arrow_type(EXAMPLES[kind])) == EXAMPLES[kind]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in NOT_IN_DUCKDB])
def test_duckdb_has_the_type_under_its_name(kind: Kind) -> None:
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT CAST(NULL AS {EXAMPLES[kind].duckdb()}) AS c").to_arrow_table()
    told = found.schema.field("c").type
    assert told == arrow_type(EXAMPLES[kind]) or pa.types.is_timestamp(told)  # with the zone of this machine


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in AS_STRING])
def test_drivers_are_told_the_numbers_that_their_protocols_have(kind: Kind) -> None:
    told = describe(str(EXAMPLES[kind]))
    own = {Kind.VOID: "NULL", Kind.TIMESTAMP_NTZ: "TIMESTAMP"}.get(kind, kind.name)
    assert TTypeId._VALUES_TO_NAMES[told.hs2] == f"{own}_TYPE"
    java = {"STRING": "VARCHAR", "INT": "INTEGER", "FLOAT": "REAL", "MAP": "JAVA_OBJECT"}.get(own, own)
    assert told.jdbc is Jdbc[java]


# ---------------------------------------------------------------------- one more row is all that a new type takes

ONE_MORE = """
    UUID = (
        "uuid",
        TypeRow(
            group=Group.TEXT, also=("guid",), arrow="string", duckdb="UUID", impala=None,
            avro=("string uuid",), driver=DriverType(42, Jdbc.VARCHAR, 36), value_bytes=16, impala_bytes=16,
        ),
    )
"""
WALK = """
import pyarrow as pa
from engines.arrow_types import arrow_type
from gateway.drivers.flight.metadata import question
from gateway.drivers.hs2 import metadata
from gateway.drivers.jdbc import describe
from sql.dialects.column_types import short_name
from engines.duckdb.writer.kinds import STRING, parse_kind
from gateway.statistics.tables import FIXED_BYTES
from metastore.discovery import avro
from selector.cardinality.predicates.vectors import Kind as Values, kind_of
from selector.types import NoSuchType, parse
from statsproc.hive import column_statistics

class Everything:
    def HasField(self, name):
        return False

assert str(parse("map<string, GUID>")) == "map<string,uuid>"
assert parse("array<uuid>").duckdb() == "UUID[]"
try:
    parse("uuid").impala()
    raise SystemExit("Impala has none")
except NoSuchType:
    pass
assert arrow_type(parse("uuid")) == pa.string()
assert (describe("uuid").hs2, describe("uuid").size) == (42, 36)
assert "UUID" in metadata.type_info().column("TYPE_NAME").to_pylist()
assert "UUID" in question("CommandGetXdbcTypeInfo", Everything()).answer(()).column("type_name").to_pylist()
assert parse_kind("uuid") == STRING and short_name("guid") == "string"
assert FIXED_BYTES["uuid"] == 16
assert kind_of("uuid") is Values.TEXT and column_statistics.kind_of("uuid") == "string"
field = {"name": "c", "type": {"type": "string", "logicalType": "uuid"}}
(column,) = avro.columns({"type": "record", "name": "r", "fields": [field]})
assert column.data_type == "uuid"
"""


def test_a_new_type_is_one_row_of_the_table(tmp_path: Path) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = next(line for line in guide.splitlines() if line.startswith("| column type |"))
    (follow,) = re.findall(r"\]\((selector/[^)]*)\)", row)
    assert ROOT / follow == TABLE
    shutil.copytree(ROOT / "selector", tmp_path / "selector", ignore=shutil.ignore_patterns("__pycache__"))
    before, last, after = TABLE.read_text(encoding="utf-8").partition("\n    VARIANT = (")
    (tmp_path / follow).write_text(before + ONE_MORE + last + after, encoding="utf-8")
    (tmp_path / "walk.py").write_text(WALK, encoding="utf-8")
    walked = subprocess.run(
        [sys.executable, str(tmp_path / "walk.py")],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert walked.returncode == 0, walked.stderr


# ---------------------------------------------------------------------- nobody else has a list of types

FEW_NAMES, FEW_ARROW_TYPES = 2, 4  # that may stand beside each other: a choice between a few types is no list of them
ALLOWED = {
    "gateway/presentation/values/plain_columns.py": "Arrow's types that need no conversion, of which Arrow has no set",
    "engines/duckdb/writer/signatures.py": "one letter per type, in which the data file is written",
    "sql/parsers/spark.py": "words of Spark's grammar before a literal, of which some are no types of columns",
    "gateway/drivers/hs2/protocol/rowset.py": "how a value stands on the wire",
    "engines/impala/arrow_columns.py": "how a value stands on the wire",
    "sql/allowlist/functions.py": "functions of Spark that cast, which have the names of some types",
    "sql/limits/sizes.py": "functions of Spark with the names of kinds of types",
    "sql/allowlist/syntax.py": "types that a statement may name, in the parser's words",
    "sql/parsing.py": "words that a < may follow, whatever the dialect",
    "engines/duckdb/writer/functions/scalars.py": "Spark's functions that cast, which have the names of some types",
    "selector/cardinality/predicates/vectors.py": "types in the parser's words",
    "metastore/lake/iceberg/reading.py": "names of types in Spark's JSON schemas, by pyiceberg's classes",
    "statsproc/hive/column_statistics.py": "kinds of Hive's statistics, some of which have the names of types",
}
NAMES = {
    *BY_NAME,
    *(name.lower() for kind in Kind for name in (kind.row.duckdb, kind.row.impala) if name and "{" not in name),
    *(name.lower() for kind in Kind for name in kind.row.duckdb_too),
    *(f"{kind}_type" for kind in Kind),
}
ARROW = {"bool_", "int8", "int16", "int32", "int64", "float32", "float64", "string", "binary", "date32", "time64"}


def _beside_each_other(tree: ast.AST) -> Iterator[list[ast.expr]]:
    """Yield what stands in one collection, as keys or values, in one case of a match, or in a text of words."""
    for node in ast.walk(tree):
        match node:
            case ast.Dict():
                yield [key for key in node.keys if key is not None]
                yield node.values
            case ast.Set() | ast.Tuple() | ast.List():
                yield node.elts
            case ast.MatchOr():
                yield [pattern.value for pattern in node.patterns if isinstance(pattern, ast.MatchValue)]
            case ast.Constant(value=str(text)) if " " not in text or "\n" in text:
                yield [ast.Constant(word) for word in re.findall(r"\w+", text)]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return tree


def _lists_types(text: str) -> bool:

    for each in _beside_each_other(_without_docstrings(ast.parse(text))):
        names = {
            str(part.value).lower() for part in each if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        attributes = [part.func if isinstance(part, ast.Call) else part for part in each]
        arrow = {
            part.attr
            for part in attributes
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "pa"
        }
        named = {part.attr.lower() for part in attributes if isinstance(part, ast.Attribute)} & {
            f"{kind}_type" for kind in Kind
        }
        if len(names & NAMES) > FEW_NAMES or len(named) > FEW_NAMES or len(arrow & ARROW) > FEW_ARROW_TYPES:
            return True
    return False


@pytest.mark.parametrize(
    "sample",
    [
        'A = {"tinyint": 1, "INT": 2, "bigint": 4}',
        "match kind:\n    case 'int' | 'bigint' | 'smallint':\n        pass",
        'A = re.compile("tinyint|smallint|int")',
        "A = {TTypeId.INT_TYPE: 1, TTypeId.DATE_TYPE: 2, TTypeId.DOUBLE_TYPE: 3}",
        "A = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string()]",
    ],
)
def test_a_list_of_types_is_found(sample: str) -> None:
    assert _lists_types(sample)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_the_table_lists_types(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    if file.is_relative_to(TABLE.parent) or name in ALLOWED or "migrations" in file.parts:
        return
    assert not _lists_types(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ALLOWED)
def test_an_exception_is_still_one(name: str) -> None:
    if not (ROOT / name).parent.exists():
        pytest.skip("its engine is not there")
    assert _lists_types((ROOT / name).read_text(encoding="utf-8")), ALLOWED[name]
