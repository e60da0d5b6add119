"""Sail's EXPLAIN COST -> Plan.

The physical part is a line per operator, two spaces deeper than its parent. Columns come as ``name@place``: a place
among the columns that come in, by which they are followed upwards; names tell nothing but for those of a scan. Scans
name their tables (``engines/sail/plan_text.py``). A join builds its first input. An aggregate comes twice, for each
part and for all of them: that is one here. Texts in conditions stand without quotes, so that each literal is read by
the type of the column beside it, and a condition that is not understood is handed on as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode, TableShape, UnreadablePlan
from selector.quoting import spark_name, spark_string
from selector.types import WHOLE, Kind, parse

DIALECT = "spark"
MOST_SIGNS = 4_000_000
MOST_LINES = 20_000
DEEPEST = 400

_HEADING = "== Physical Plan =="
_INDENT = 2
_STATISTICS = ", statistics=[Rows="
_AND = " AND "
_FILTER = "FilterExec"
_PROJECTED = "projection"
_PROJECTION = f", {_PROJECTED}=["
_ROWS = re.compile(r"(?:Exact|Inexact)\((\d{1,18})\)")
_NAMED = re.compile(r"(.*) as (.*)", re.DOTALL)
_PLACED = re.compile(r"(.*)@(\d{1,6})", re.DOTALL)
_CAST = re.compile(r"CAST\((.*) AS (\w+)(?:\(.*\))?\)", re.DOTALL)
_CONDITION = re.compile(r"(\S+)@(\d{1,6}) (=|!=|<|<=|>|>=|LIKE|NOT LIKE|IS NULL|IS NOT NULL)(?: (.*))?", re.DOTALL)
_SORT_KEY = re.compile(r"(.*) (?:ASC|DESC)(?: NULLS (?:FIRST|LAST))?", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?(?:[eE][-+]?\d{1,3})?")
_OPENING, _CLOSING = "([{", ")]}"

_ARROW_TYPES = {  # as DataFusion names them
    **{kind.row.arrow.capitalize(): kind.value for kind in Kind if kind == Kind.DATE or kind.value in WHOLE},
    "Float32": Kind.FLOAT.value,
    "Float64": Kind.DOUBLE.value,
    **dict.fromkeys(("Utf8", "LargeUtf8", "Utf8View"), Kind.STRING.value),
    "Boolean": Kind.BOOLEAN.value,
    "Decimal128": "decimal(38,10)",
    "Timestamp": Kind.TIMESTAMP.value,
}
_OPERATORS = {
    "DataSourceExec": Operator.SCAN,
    _FILTER: Operator.FILTER,
    "ProjectionExec": Operator.PROJECT,
    "HashJoinExec": Operator.HASH_JOIN,
    "SortMergeJoinExec": Operator.HASH_JOIN,
    "NestedLoopJoinExec": Operator.NESTED_LOOP_JOIN,
    "CrossJoinExec": Operator.NESTED_LOOP_JOIN,
    "AggregateExec": Operator.AGGREGATE,
    "SortExec": Operator.SORT,
    "GlobalLimitExec": Operator.LIMIT,
    "LocalLimitExec": Operator.LIMIT,
    "WindowAggExec": Operator.WINDOW,
    "BoundedWindowAggExec": Operator.WINDOW,
    "UnionExec": Operator.UNION,
    "InterleaveExec": Operator.UNION,
    "EmptyExec": Operator.EMPTY,
}
_JOIN_TYPES = {  # as they are said of the first and the second input; the second is our probe side
    "Inner": JoinType.INNER,
    "Left": JoinType.RIGHT,
    "Right": JoinType.LEFT,
    "Full": JoinType.FULL,
    "LeftSemi": JoinType.RIGHT_SEMI,
    "RightSemi": JoinType.SEMI,
    "LeftAnti": JoinType.RIGHT_ANTI,
    "RightAnti": JoinType.ANTI,
    "LeftMark": JoinType.MARK,
    "RightMark": JoinType.MARK,
}
_OF_ONE_SIDE = {"LeftSemi": 0, "LeftAnti": 0, "RightSemi": 1, "RightAnti": 1, "LeftMark": 0, "RightMark": 1}


@dataclass(slots=True)
class _Line:
    """One operator as its line says it."""

    name: str
    details: dict[str, str]
    rows: float | None
    children: list[_Line] = field(default_factory=list)


def read(text: str, tables: Sequence[TableShape]) -> Plan:
    """Read a plan over these tables. Raises UnreadablePlan."""
    if len(text) > MOST_SIGNS:
        raise UnreadablePlan("a plan that is too long")
    try:
        return Plan(_Reader(tables).node(_tree(text)), DIALECT)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadablePlan(f"not a plan of Sail's: {error}") from error


def _tree(text: str) -> _Line:
    _, found, physical = text.partition(_HEADING)
    if not found:
        raise UnreadablePlan("a plan without its physical part")
    above: list[_Line] = []
    root: _Line | None = None
    for number, line in enumerate(physical.strip("\n").split("\n")):
        if number > MOST_LINES:
            raise UnreadablePlan("a plan of too many lines")
        said = line.lstrip(" ")
        depth, rest = divmod(len(line) - len(said), _INDENT)
        if not said:
            continue
        if rest or depth > len(above) or depth > DEEPEST or (root is not None and not depth):
            raise UnreadablePlan("lines that do not stand below each other")
        del above[depth:]
        part = _line(said)
        if above:
            above[-1].children.append(part)
        root = root or part
        above.append(part)
    if root is None:
        raise UnreadablePlan("a plan without lines")
    return root


def _line(text: str) -> _Line:
    said, _, statistics = text.rpartition(_STATISTICS)
    said = said or text
    rows = _ROWS.match(statistics)
    name, _, details = said.partition(": ")
    if name == _FILTER:  # whose texts may hold brackets that nothing closes
        condition, projection, columns = details.rpartition(_PROJECTION)
        found = {"": condition, _PROJECTED: f"[{columns}"} if projection else {"": details}
    else:
        name, found = name.partition(",")[0], _details(details)
    return _Line(name, found, float(rows[1]) if rows else None)


def _details(text: str) -> dict[str, str]:
    """Return what stands behind each ``key=`` of a line; what has no key is ``""``."""
    found: dict[str, str] = {}
    last = ""
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if equals and key.isidentifier():
            last = key
            found[key] = value
        else:  # a comma within a text, or a condition
            found[last] = f"{found[last]}, {part}" if last in found else part
    return found


def _parts(text: str) -> Iterator[str]:
    """Split at commas that stand in no brackets."""
    depth = start = 0
    for place, sign in enumerate(text):
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth = max(0, depth - 1)
        elif sign == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    if rest := text[start:].strip():
        yield rest


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(_parts(text[1:-1])) if text and text[0] == "[" and text[-1] == "]" else ()


class _Reader:
    """Turns lines into nodes, bottom up."""

    def __init__(self, tables: Sequence[TableShape]) -> None:
        self._tables = {table.name: table for table in tables}
        self._scans = 0

    def node(self, line: _Line) -> PlanNode:
        """Return the node that a line is, or what is below one that changes nothing."""
        final = line.name == "AggregateExec" and line.details.get("mode", "").startswith("Final")
        if final:  # below it, behind exchanges, is the same aggregate of each part
            below = line.children[0]
            while below.name != "AggregateExec" and len(below.children) == 1:
                below = below.children[0]
            if below.name == "AggregateExec" and below.details.get("mode", "").startswith("Partial"):
                return self._aggregate(line, self.node(below.children[0]), below)
        children = tuple(self.node(child) for child in line.children)
        operator = _OPERATORS.get(line.name, Operator.OTHER)
        node = PlanNode(
            operator,
            line.name,
            children,
            line.rows,
            children[0].columns if children else (),
        )
        match operator:
            case Operator.SCAN:
                return self._scan(node, line)
            case Operator.FILTER:
                conditions = tuple(_conditions(line.details.get("", ""), node.columns))
                return replace(node, predicates=conditions, columns=_kept(line, node.columns))
            case Operator.PROJECT:
                columns = tuple(_named(text, node.columns) for text in _listed(line.details.get("expr")))
                return replace(node, columns=columns)
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return _join(node, line)
            case Operator.AGGREGATE:
                return self._aggregate(line, children[0], line)
            case Operator.SORT:
                keys = tuple(_sort_key(text, node.columns) for text in _listed(line.details.get("expr")))
                limit = re.match(r"TopK\(fetch=(\d{1,18})\)", line.details.get("", ""))
                if limit:
                    return replace(node, operator=Operator.TOP_N, sort_keys=keys, limit=int(limit[1]))
                return replace(node, sort_keys=keys)
            case Operator.LIMIT:
                fetch = line.details.get("fetch", "")
                return replace(node, limit=int(fetch) if fetch.isdigit() else None)
            case Operator.WINDOW:
                calls = tuple(PlanColumn(text, "bigint") for text in _listed(line.details.get("wdw")))
                return replace(node, columns=(*node.columns, *calls))
            case Operator.OTHER if len(children) == 1:
                return children[0]  # exchanges and batches
            case _:
                return node

    def _scan(self, node: PlanNode, line: _Line) -> PlanNode:
        if not line.details.get("table"):
            return node
        table = self._tables[str(json.loads(line.details["table"]))]
        number = self._scans
        self._scans += 1
        names = list(table.columns)
        stored = tuple(PlanColumn(name, table.columns[name], table.name, number) for name in names)
        columns = []
        for text in _listed(line.details.get(_PROJECTED)):
            plain = next((column for column in stored if column.name == text), None)
            columns.append(plain or _of_table(text, stored))
        scanned = tuple(dict.fromkeys(column for column in columns if column.table is not None))
        return replace(node, table=table.name, columns=tuple(columns), scanned=scanned, scan=number)

    @staticmethod
    def _aggregate(line: _Line, child: PlanNode, partial: _Line) -> PlanNode:
        keys = tuple(_named(text, child.columns) for text in _listed(partial.details.get("gby")))
        calls = tuple(PlanColumn(text, _type_of_call(text)) for text in _listed(line.details.get("aggr")))
        return PlanNode(Operator.AGGREGATE, line.name, (child,), line.rows, columns=(*keys, *calls), group_keys=keys)


def _of_table(text: str, stored: Sequence[PlanColumn]) -> PlanColumn:
    """Return the column of a table that a scan hands on by another name; another one was computed from it."""
    expression = _NAMED.fullmatch(text)
    found = _PLACED.fullmatch(expression[1] if expression else text)
    column = next((each for each in stored if found and each.name == found[1]), None)
    return column or PlanColumn(text, _cast_type(expression[1] if expression else text))


def _named(text: str, inputs: Sequence[PlanColumn]) -> PlanColumn:
    """Return the column that ``expression as name`` is."""
    expression = _NAMED.fullmatch(text)
    return _column(expression[1] if expression else text, inputs)


def _column(text: str, inputs: Sequence[PlanColumn]) -> PlanColumn:
    found = _PLACED.fullmatch(text.strip())
    if found and int(found[2]) < len(inputs) and not set(found[1]) & {"(", " "}:
        return inputs[int(found[2])]
    if found and int(found[2]) < len(inputs) and inputs[int(found[2])].name == found[1]:
        return inputs[int(found[2])]  # the name of an aggregate's column
    cast = _CAST.fullmatch(text.strip())
    if cast:
        inner = _column(cast[1], inputs)
        if inner.table is not None:
            return replace(inner, data_type=_ARROW_TYPES.get(cast[2], inner.data_type))
    return PlanColumn(text, _cast_type(text))


def _cast_type(text: str) -> str | None:
    cast = _CAST.fullmatch(text.strip())
    return _ARROW_TYPES.get(cast[2]) if cast else None


def _type_of_call(text: str) -> str | None:
    name = text.partition("(")[0].lower()
    return {"count": "bigint", "avg": "double", "sum": "decimal(38,0)"}.get(name)


def _kept(line: _Line, columns: tuple[PlanColumn, ...]) -> tuple[PlanColumn, ...]:
    """Return the columns that a filter or a join hands on."""
    if _PROJECTED not in line.details:
        return columns
    return tuple(_column(text, columns) for text in _listed(line.details[_PROJECTED]))


def _sort_key(text: str, columns: Sequence[PlanColumn]) -> PlanColumn:
    found = _SORT_KEY.fullmatch(text)
    return _column(found[1] if found else text, columns)


def _join(node: PlanNode, line: _Line) -> PlanNode:
    build, probe = node.children
    said = line.details.get("join_type", "Inner")
    keys = []
    for pair in _listed(line.details.get("on")):
        left, right = _parts(pair.removeprefix("(").removesuffix(")"))
        keys.append((_column(right, probe.columns), _column(left, build.columns)))
    sides = (build.columns, probe.columns)
    own = _OF_ONE_SIDE.get(said)
    columns = (*sides[0], *sides[1]) if own is None else sides[own]
    if said.endswith("Mark"):
        columns = (*columns, PlanColumn("mark", "boolean"))
    kind = JoinType.CROSS if line.name == "CrossJoinExec" else _JOIN_TYPES[said]
    return replace(node, children=(probe, build), join_type=kind, join_keys=tuple(keys), columns=_kept(line, columns))


def _conditions(text: str, columns: Sequence[PlanColumn]) -> Iterator[str]:
    """Yield each condition of a filter in Spark's words, as far as that can be told."""
    depth = start = 0
    parts = []
    for place, sign in enumerate(text):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if not depth and text.startswith(_AND, place):
            parts.append(text[start:place])
            start = place + len(_AND)
    if depth:  # a bracket in a text, which nothing closes
        parts, start = text.split(_AND), len(text)
    for part in (*parts, text[start:]):
        if part.strip():
            yield _condition(part.strip(), columns)


def _condition(text: str, columns: Sequence[PlanColumn]) -> str:
    if text.startswith("(") and text.endswith(")") and " OR " in text and "(" not in text[1:-1]:
        return f"({' OR '.join(_condition(part, columns) for part in text[1:-1].split(' OR '))})"
    plain = _PLACED.fullmatch(text)
    if plain and int(plain[2]) < len(columns) and columns[int(plain[2])].data_type == "boolean":
        return spark_name(columns[int(plain[2])].name)
    found = _CONDITION.fullmatch(text)
    column = columns[int(found[2])] if found and int(found[2]) < len(columns) else None
    if found is None or column is None or column.table is None or column.data_type is None:
        return text
    word, value = "<>" if found[3] == "!=" else found[3], found[4]
    name = spark_name(column.name)
    if value is None:
        return f"{name} {word}"
    literal = _literal(value, column.data_type)
    return f"{name} {word} {literal}" if literal is not None else text


def _literal(value: str, data_type: str) -> str | None:
    """Return a literal as SQL has it, by the type of what it is compared with; None for what is none."""
    kind = parse(data_type)
    if kind.is_text:
        return spark_string(value)
    if str(kind) == "date":
        return f"DATE {spark_string(value)}"
    if str(kind) == "boolean":
        return value if value in ("true", "false") else None
    return value if _NUMBER.fullmatch(value) and str(kind) not in ("timestamp", "timestamp_ntz") else None
