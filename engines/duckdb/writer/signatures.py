"""Types of arguments that Spark accepts, by function and operator, as Spark's own analysis told.

``signatures.txt`` is made by ``benchmarks/signatures.py``. A line is a name and, for each argument, the letters of the
types that it may have; several lines of a name are alternatives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from engines.duckdb.writer.kinds import Kind
from engines.duckdb.writer.values import Value, require

FILE = Path(__file__).with_name("signatures.txt")

LETTERS: Mapping[str, str] = {
    **{"void": "v", "boolean": "b", "tinyint": "t", "smallint": "s", "int": "i", "bigint": "l", "float": "f"},
    **{"double": "d", "decimal": "c", "string": "S", "binary": "B", "date": "D", "timestamp": "T"},
    "timestamp_ntz": "N",
}
"""Letters of types; a type without one stands in no signature."""

OPERATORS: Mapping[str, tuple[str, int]] = {
    **{
        sign: (f"{{0}} {sign} {{1}}", 2)
        for sign in ("+", "-", "*", "/", "%", "DIV", "=", "<", "<=>", "&", "|", "^", "||")
    },
    **{word: (f"{{0}} {word} {{1}}", 2) for word in ("AND", "OR", "LIKE", "ILIKE", "RLIKE", "IN")},
    "IN": ("{0} IN ({1})", 2),
    "negated": ("-{0}", 1),
    "~": ("~{0}", 1),
    "NOT": ("NOT {0}", 1),
    **{f"EXTRACT:{part}": (f"EXTRACT({part} FROM {{0}})", 1) for part in ("YEAR", "HOUR")},
    "CASE": ("CASE WHEN c_boolean THEN {0} ELSE {1} END", 2),
    **{f"CAST:{kind}": (f"CAST({{0}} AS {kind})", 1) for kind in LETTERS if kind != "void"},
    **{f"TRY_CAST:{kind}": (f"TRY_CAST({{0}} AS {kind})", 1) for kind in LETTERS if kind != "void"},
}
"""Names of what is no call, each with a template and a number of arguments."""

PAIRWISE = frozenset("coalesce greatest least concat concat_ws count IN CASE".split())
"""Names that take any number of arguments, whose types depend on one another: each two must be accepted."""

BY_THEIR_PARTS = frozenset("nvl2 decode grouping grouping_id date_part datepart extract".split())
"""Names whose rules tell by themselves what Spark accepts."""


def require_accepted(name: str, values: Sequence[Value]) -> None:
    """Raise NoEquivalent unless Spark accepts a call, or an operator, with values of these types."""
    kinds = [value.kind for value in values]
    require(_accepts(name, kinds), f"{name} of {', '.join(map(str, kinds)) or 'nothing'}.")


def _accepts(name: str, kinds: Sequence[Kind]) -> bool:
    letters = [LETTERS.get(kind.name, "?") for kind in kinds]
    rows = _rows()[name]
    if name in PAIRWISE and len(letters) > 2:
        distinct = list(dict.fromkeys(letters))
        pairs = [(one, other) for place, one in enumerate(distinct) for other in distinct[place:]]
        return all(any(_matches(row, pair) for row in rows) for pair in pairs)
    return any(_matches(row, letters) for row in rows)


def _matches(row: Sequence[str], letters: Sequence[str]) -> bool:
    return len(row) == len(letters) and all(letter in part for letter, part in zip(letters, row, strict=True))


@cache
def _rows() -> Mapping[str, Sequence[Sequence[str]]]:
    rows: defaultdict[str, list[Sequence[str]]] = defaultdict(list)
    for line in FILE.read_text(encoding="ascii").splitlines():
        name, *parts = line.split(" ")
        rows[name].append(parts)
    return rows
