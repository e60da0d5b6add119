"""DuckDB's EXPLAIN (FORMAT JSON) -> Plan.

The text names no tables and no types. Both come from the catalog: a scan is matched to the table that has all its
columns, and where several do, to the one whose row count DuckDB's own estimate gives away (a fifth of the rows with a
filter from the statement, all of them without one or with a filter that a join pushed down). Columns are then followed
upwards by name and by ``#position``. What a join hands on is not printed: the columns that are named above it are. A
projection prints the alias of an expression instead of itself; the statement tells which expression that is.

The file is long as each way in which the text leaves a column out has its own remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from engines.duckdb.writer.own_words import in_own_words
from selector.join_keys import ColumnRef, KeyPair, key_groups
from selector.plan import MARK, JoinType, Operator, Plan, PlanColumn, PlanNode, TableShape, UnreadablePlan
from selector.query_text import Wording
from selector.types import MAX_PRECISION, Kind, decimal

DIALECT = "duckdb"
FILTERED_SHARE = 0.2  # what DuckDB's optimizer keeps of a scan that has any filter
NO_WORDING = Wording()
NEAR = 1e-3  # of a table's rows: DuckDB counts those of one file, and multiplies

_OPERATORS = {
    "FILTER": Operator.FILTER,
    "PROJECTION": Operator.PROJECT,
    "HASH_JOIN": Operator.HASH_JOIN,
    "LEFT_DELIM_JOIN": Operator.HASH_JOIN,
    "RIGHT_DELIM_JOIN": Operator.HASH_JOIN,
    "NESTED_LOOP_JOIN": Operator.NESTED_LOOP_JOIN,
    "BLOCKWISE_NL_JOIN": Operator.NESTED_LOOP_JOIN,
    "PIECEWISE_MERGE_JOIN": Operator.NESTED_LOOP_JOIN,
    "IE_JOIN": Operator.NESTED_LOOP_JOIN,
    "ASOF_JOIN": Operator.NESTED_LOOP_JOIN,
    "POSITIONAL_JOIN": Operator.NESTED_LOOP_JOIN,
    "CROSS_PRODUCT": Operator.NESTED_LOOP_JOIN,
    "HASH_GROUP_BY": Operator.AGGREGATE,
    "PERFECT_HASH_GROUP_BY": Operator.AGGREGATE,
    "PARTITIONED_AGGREGATE": Operator.AGGREGATE,
    "UNGROUPED_AGGREGATE": Operator.AGGREGATE,
    "SIMPLE_AGGREGATE": Operator.AGGREGATE,
    "ORDER_BY": Operator.SORT,
    "TOP_N": Operator.TOP_N,
    "LIMIT": Operator.LIMIT,
    "STREAMING_LIMIT": Operator.LIMIT,
    "WINDOW": Operator.WINDOW,
    "UNION": Operator.UNION,
    "CTE": Operator.MATERIALIZE,
    "EMPTY_RESULT": Operator.EMPTY,
}
_IN_VALUES = "IN (...)"  # how a filter names the mark of a join with a list of values
_NAMING = ("Projections", "Groups", "Aggregates", "Conditions", "Expression", "Order By")  # what names columns
_SCANS = re.compile(r"^(READ_|SEQ_SCAN|TABLE_SCAN|PARQUET_SCAN|CSV_SCAN|PYTHON_ARROW_SCAN)")
_JOIN_TYPES = {kind.name: kind for kind in JoinType}
_EQUALITY = re.compile(r" (?:=|IS NOT DISTINCT FROM) ")
_POSITION = re.compile(r"^#(?:\[\d+\.)?(\d+)\]?$")
_CTE_POSITION = re.compile(r"^#\[\d+\.(\d+)\]$")
_ANY_POSITION = re.compile(r"#(?:\[\d+\.)?(\d+)")
_CAST_POSITION = re.compile(r"^CAST\(#(?:\[\d+\.)?(\d+)\]? AS ([^)]*(?:\([^)]*\))?)\)$")
_NARROWED = re.compile(r"^__internal_(?:de)?compress_(?:integral|string)(?:_(\w+))?\((.*?)(?:, -?\d+)?\)$")
_TEXTS = (exp.Substring, exp.Upper, exp.Lower, exp.Trim, exp.Concat, exp.DPipe, exp.Left, exp.Right, exp.Replace)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_SORT_ORDER = re.compile(r" (ASC|DESC)( NULLS (FIRST|LAST))?$")
_AGGREGATE_CALL = re.compile(r"^(\w+)\((?:DISTINCT )?(.*)\)$")
_AGGREGATE_TYPES = {"count": "bigint", "count_star": "bigint", "avg": "double", "sum": "decimal(38,0)"}
_SPARK_TYPES = {
    **{
        kind.row.duckdb: kind.value
        for kind in reversed(Kind)
        if kind.row.duckdb is not None and "{" not in kind.row.duckdb
    },
    **{name: kind.value for kind in Kind for name in kind.row.duckdb_too},
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), str(decimal(MAX_PRECISION))),
}


def read(
    text: str,
    tables: Sequence[TableShape],
    joined: Iterable[KeyPair] = (),
    references: Mapping[str, int] | None = None,
    wording: Wording = NO_WORDING,
) -> Plan:
    """Read a plan over these tables: those that the statement names. Raises UnreadablePlan.

    joined: pairs of columns that the statement joins. A condition names columns without their tables; where several
    columns of that name come in, those that are joined are meant. references: how often the statement names each
    table, which tells scans of the same columns apart; None where nobody counted. wording: how the statement says what
    the plan says otherwise.
    """
    try:
        roots = json.loads(text)
        reader = _Reader(tables, joined, wording)
        reader.match(roots[0], references)
        return Plan(reader.node(roots[0], frozenset()), DIALECT, tuple(reader.notes), wording.named)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnreadablePlan(f"not a DuckDB plan: {error}") from error


class _Reader:
    """Turns nodes around, bottom up; keeps what CTE definitions put out for the scans of them."""

    def __init__(self, tables: Sequence[TableShape], joined: Iterable[KeyPair], wording: Wording) -> None:
        self._tables = tables
        self._expressions = wording.named
        self._predicates = wording.predicates
        joined = tuple(joined)
        self._group_of = {column: name for name, group in key_groups(joined).items() for column in group}
        self._stated = {frozenset((pair.left, pair.right)) for pair in joined}
        self._definitions: dict[str, PlanNode] = {}
        self._scans = 0
        self._matched: list[TableShape | None] = []
        self.notes: list[str] = []

    def node(self, raw: dict[str, Any], above: frozenset[str]) -> PlanNode:
        """Turn a node around. above: the names that nodes above it use of what it hands on."""
        name, info = raw["name"], raw.get("extra_info") or {}
        used = self._used(name, info, above)
        if name == "CTE":
            return self._cte(raw, info, above)
        children = tuple(self.node(child, used) for child in raw.get("children", ()))
        if name == "UNION":  # a branch that is never true adds no row, and does not know what columns were read from
            children = tuple(child for child in children if child.operator is not Operator.EMPTY) or children[:1]
        node = PlanNode(
            operator=Operator.SCAN if _SCANS.match(name) else _OPERATORS.get(name, Operator.OTHER),
            label=name,
            children=children,
            cardinality=_number(info.get("Estimated Cardinality")),
            columns=children[0].columns if children else (),
        )
        match node.operator:
            case Operator.SCAN:
                return self._scan(node, info)
            case Operator.FILTER:
                texts = tuple(text.replace(_IN_VALUES, MARK) for text in _texts(info.get("Expression")))
                return replace(node, predicates=tuple(self._spelled(text, node.columns) for text in texts))
            case Operator.PROJECT:
                texts = _texts(info.get("Projections"))
                return replace(node, columns=self._projected(texts, children[0], _handed_on(children[0], texts, used)))
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return self._join(node, info)
            case Operator.AGGREGATE:
                return _aggregate(node, info)
            case Operator.WINDOW:
                added = tuple(PlanColumn(text, "bigint") for text in _texts(info.get("Projections")))
                return replace(node, columns=(*node.columns, *added))
            case Operator.SORT | Operator.TOP_N:
                keys = tuple(_resolve(_SORT_ORDER.sub("", text), node.columns) for text in _texts(info.get("Order By")))
                return replace(node, sort_keys=keys, limit=_rows(info.get("Top")))
            case Operator.LIMIT:
                return replace(node, limit=_rows(info.get("Limit")))
            case _ if name in ("CTE_SCAN", "RECURSIVE_CTE_SCAN"):
                index = str(info.get("CTE Index", ""))
                definition = self._definitions.get(index)
                return replace(node, columns=definition.columns, reference=index) if definition else node
            case _:
                return node

    def _used(self, name: str, info: dict[str, Any], above: frozenset[str]) -> frozenset[str]:
        """Return the names that a node and those above it use of its inputs; positions say nothing about names."""
        own = [text for field in _NAMING for text in _texts(info.get(field))]
        words = frozenset(own).union(*(_words(text, self._expressions) for text in own))
        words -= {MARK} if name == "FILTER" else frozenset()  # it is a join right below that marks
        hides = name == "PROJECTION" and not any(_ANY_POSITION.search(text) for text in own)
        return words if hides else words | above

    def _spelled(self, text: str, inputs: Sequence[PlanColumn]) -> str:
        """Write a predicate as the statement has it; of its aliases, those that do not come in, what they stand for."""
        text = in_own_words(text, self._predicates, DIALECT)
        names = {column.name for column in inputs}
        for word in set(_IDENTIFIER.findall(text)) - names:
            meanings = self._expressions.get(word.lower(), ())
            if len(meanings) == 1:
                parts = re.split(rf"(?<![\w.']){word}(?![\w(])", text)
                text = f"({meanings[0]})".join(parts)
        return text

    def _projected(
        self, texts: Sequence[str], child: PlanNode, inputs: tuple[PlanColumn, ...]
    ) -> tuple[PlanColumn, ...]:
        """Follow columns through a projection.

        A name that does not come in is another name of a column that it was joined with, the alias of an expression, or
        a new one of an input that no other name means; of these, computed ones come first.
        """
        outer_keys = self._outer_keys(texts, child, inputs)
        columns = [
            outer_keys.get(place) or _of_cte(text, child) or _resolve(text, inputs) for place, text in enumerate(texts)
        ]
        strange = {
            place: text
            for place, (text, column) in enumerate(zip(texts, columns, strict=True))
            if column not in inputs and _IDENTIFIER.fullmatch(text.strip())
        }
        same = {build.name: probe for below in _through_filters(child) for probe, build in below.join_keys}
        names = {column.name for column in inputs}
        for place, text in list(strange.items()):
            meanings = self._expressions.get(text.lower(), ())
            source = same.get(text) or _of_definition(text, child)
            if source is None:
                meant = [column for column in inputs if column.name in meanings]
                source = next((column for column in meant if column not in columns), next(iter(meant), None))
            computed = [one for one in meanings if _is_of_rows(one) and _columns_in(one) <= names]
            if source is not None and (source in inputs or source.name == text):
                columns[place] = source
                del strange[place]
            elif len(meanings) == len(computed) == 1:
                columns[place] = PlanColumn(computed[0], _computed_type(computed[0]))
                del strange[place]
        unused = [column for column in inputs if column not in columns]
        for some in ([column for column in unused if column.table is None], unused):
            if len(some) == len(strange):
                for place, column in zip(strange, some, strict=True):
                    columns[place] = column
                break
        return tuple(columns)

    def _outer_keys(self, texts: Sequence[str], child: PlanNode, inputs: Sequence[PlanColumn]) -> dict[int, PlanColumn]:
        """Return by their places the keys of a subquery that are printed with the names of those that ask by them.

        They are told by inputs that nothing else names, and that the statement compares with columns of these names.
        """
        named = set(texts).union(*(_words(text, {}) for text in texts))
        named |= {inputs[at].name for text in texts for at in map(int, _ANY_POSITION.findall(text)) if at < len(inputs)}
        filters = ""
        while child.operator in (Operator.PROJECT, Operator.FILTER):
            filters += " ".join(child.predicates)
            child = child.children[0]
        is_made = child.operator in (Operator.SCAN, Operator.AGGREGATE)
        if not is_made and child.join_type not in (JoinType.SEMI, JoinType.RIGHT_SEMI):
            return {}
        unused = {one.name.lower(): one for one in inputs if one.table is not None and one.name not in named}
        unused = {name: one for name, one in unused.items() if name not in _words(filters, self._expressions)}
        places = {text.lower(): place for place, text in reversed(list(enumerate(texts)))}
        tables = {one.table for one in unused.values()}
        groupings: list[dict[int, PlanColumn]] = []
        for own, group in self._group_of.items():
            columns = own.columns
            if own.table not in tables or any(name not in unused for name in columns):
                continue
            for other, others in self._group_of.items():
                theirs = other.columns
                if others == group and len(theirs) == len(columns) and all(name in places for name in theirs):
                    groupings.append({places[a]: unused[b] for a, b in zip(theirs, columns, strict=True)})
        return max(groupings, key=len, default={})

    def _cte(self, raw: dict[str, Any], info: dict[str, Any], above: frozenset[str]) -> PlanNode:
        index = str(info.get("Table Index", ""))
        definition = self.node(raw["children"][0], frozenset())
        self._definitions[index] = definition
        body = self.node(raw["children"][1], above)
        return PlanNode(
            operator=Operator.MATERIALIZE,
            label="CTE",
            children=(definition, body),
            cardinality=_number(info.get("Estimated Cardinality")),
            columns=body.columns,
            reference=index,
        )

    def _scan(self, node: PlanNode, info: dict[str, Any]) -> PlanNode:
        names, (written, optional) = _texts(info.get("Projections")), _filters(info)
        filters = tuple(in_own_words(text, self._predicates, DIALECT) for text in written)
        read = _read_columns(info)
        table = self._matched[self._scans]
        self._scans += 1
        columns = tuple(
            PlanColumn(name, table.columns.get(name) if table else None, table.name if table else None, self._scans)
            for name in read
        )
        return replace(
            node,
            scan=self._scans,
            columns=columns[: len(names)],
            scanned=columns,
            table=table.name if table else None,
            predicates=filters,
            optional=optional,
        )

    def _join(self, node: PlanNode, info: dict[str, Any]) -> PlanNode:
        probe, build = node.children[0], node.children[1]
        kind = _JOIN_TYPES.get(str(info.get("Join Type", "INNER")), JoinType.INNER)
        if node.label == "CROSS_PRODUCT":
            kind = JoinType.CROSS
        keys: list[tuple[PlanColumn, PlanColumn]] = []
        others = []
        for condition in _texts(info.get("Conditions")):
            equal = _equality(condition)
            if equal is not None:
                keys.append(self._pair(*equal, probe, build, keys))
            else:
                others.append(in_own_words(condition, self._predicates, DIALECT))
        match kind:
            case JoinType.SEMI | JoinType.ANTI:
                columns = probe.columns
            case JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
                columns = build.columns
            case JoinType.MARK:
                columns = (*probe.columns, PlanColumn(MARK, "boolean"))
            case _:
                columns = (*probe.columns, *build.columns)
        return replace(node, join_type=kind, join_keys=tuple(keys), predicates=tuple(others), columns=columns)

    def _pair(
        self, lhs: str, rhs: str, probe: PlanNode, build: PlanNode, before: Sequence[tuple[PlanColumn, PlanColumn]]
    ) -> tuple[PlanColumn, PlanColumn]:
        """Resolve both sides of an equality; of several columns with one name take two that are joined.

        Of columns that are equal DuckDB may print the name of one that does not come in. before: pairs of the same join
        that were resolved already.
        """
        outer = _subquery(lhs, probe.columns), _subquery(rhs, build.columns)
        if any(outer):
            return outer[0] or _resolve(lhs, probe.columns), outer[1] or _resolve(rhs, build.columns)
        named_left, named_right = self._named(lhs, probe.columns), self._named(rhs, build.columns)
        ways = ((named_left, named_right), (named_left, build.columns), (probe.columns, named_right))
        for some, others in ways:
            joined = []
            for a, b in product(some, others):
                names = ColumnRef(a.table or "", a.name.lower()), ColumnRef(b.table or "", b.name.lower())
                groups = {self._group_of.get(name) for name in names}
                if len(groups) == 1 and None not in groups:
                    joined.append((a, b, frozenset(names) in self._stated))
            stated = [(a, b) for a, b, is_stated in joined if is_stated] or [(a, b) for a, b, _ in joined]
            if stated:
                return stated[0] if len(stated) == 1 else _likeliest(stated, probe, build, before)
        first, second = _resolve(lhs, probe.columns), _resolve(rhs, build.columns)
        return (
            next(iter(named_left), first) if first not in probe.columns else first,
            next(iter(named_right), second) if second not in build.columns else second,
        )

    def _named(self, text: str, inputs: tuple[PlanColumn, ...]) -> tuple[PlanColumn, ...]:
        """Return the columns that a name may mean: those of that name, else those that it is an alias of."""
        name = text.strip().strip('"')
        same_name = tuple(column for column in inputs if column.name == name)
        meanings = self._expressions.get(name.lower(), ())
        return same_name or tuple(column for column in inputs if column.name in meanings)

    def match(self, root: dict[str, Any], references: Mapping[str, int] | None) -> None:
        """Find out which table each scan reads, those with the least choice first."""
        scans = list(_scans_below(root))
        references_left = dict(references) if references is not None else {}
        possible = [self._possible(scan) for scan in scans]

        def free(at: int) -> list[TableShape]:
            return [table for table in possible[at] if references_left.get(table.name, 0) > 0] or possible[at]

        matched: dict[int, TableShape | None] = {}
        while len(matched) < len(scans):
            at = min((at for at in range(len(scans)) if at not in matched), key=lambda at: (len(free(at)), at))
            options = free(at)
            if len(options) > 1:
                among = " or ".join(sorted(table.name for table in options))
                columns = ", ".join(sorted(_read_columns(scans[at].get("extra_info") or {})))
                self.notes.append(f"a scan of {columns or 'no columns'} may be of {among}")
            matched[at] = max(options, key=lambda table: table.rows or 0, default=None)
            table = matched[at]
            if table is not None:
                references_left[table.name] = references_left.get(table.name, 0) - 1
        self._matched = [matched[at] for at in range(len(scans))]

    def _possible(self, scan: dict[str, Any]) -> list[TableShape]:
        info = scan.get("extra_info") or {}
        names, cardinality = set(_read_columns(info)), _number(info.get("Estimated Cardinality"))
        possible = [table for table in self._tables if names <= set(table.columns)]
        if len(possible) > 1 and cardinality is not None:
            shares = (1.0, FILTERED_SHARE) if _filters(info)[0] else (1.0,)
            alike = [t for t in possible if t.rows is not None and _is_share(cardinality, t.rows, shares)]
            possible = alike or possible
        return possible


_OPTIONAL = "optional: "
_ALWAYS = "true"


def _scans_below(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield scans in the order in which the nodes are turned around."""
    if _SCANS.match(raw["name"]):
        yield raw
        return
    for child in raw.get("children", ()):
        yield from _scans_below(child)


def _filters(info: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the filters that a scan applies, and those that it may apply: ``optional: (...)``, alone or in an AND."""
    required, optional = [], []
    for text in _texts(info.get("Filters")):
        rest, optional_filters = _without_optional(text)
        optional += optional_filters
        if rest != _ALWAYS:
            required.append(rest)
    return tuple(required), tuple(optional)


def _without_optional(text: str) -> tuple[str, list[str]]:
    optional_filters: list[str] = []
    while (start := text.find(_OPTIONAL)) >= 0:
        first = start + len(_OPTIONAL)
        if text[first : first + 1] != "(":  # names a filter that comes from a join at run time
            return (_ALWAYS, optional_filters) if start == 0 else (text, optional_filters)
        end, depth, quoted = first, 0, False
        while end < len(text):
            quoted ^= text[end] == "'"
            depth += 0 if quoted else (text[end] == "(") - (text[end] == ")")
            end += 1
            if depth == 0:
                break
        optional_filters.append(text[first:end])
        text = text[:start] + _ALWAYS + text[end:]
    return text, optional_filters


def _read_columns(info: dict[str, Any]) -> tuple[str, ...]:
    """Return what a scan decodes: the columns that it hands on, then those that only its filters need."""
    names = _texts(info.get("Projections"))
    return (*names, *sorted(_columns_of(_filters(info)[0]) - set(names)))


def _is_share(cardinality: float, rows: int, shares: Sequence[float]) -> bool:
    return any(abs(rows * share - cardinality) <= max(1.0, NEAR * rows * share) for share in shares)


def _handed_on(node: PlanNode, texts: Sequence[str], used: frozenset[str]) -> tuple[PlanColumn, ...]:
    """Return a node's columns as the projection above it counts them.

    A join hands on only what is needed above, and its text does not say which columns those are. They are those that
    are named above, and those without a name, if they are as many as the highest ``#position`` tells; else the join's
    keys are the first that nobody needs.
    """
    positions = [int(position) for text in texts for position in _ANY_POSITION.findall(text)]
    below = next(iter(_through_filters(node)), None)
    if below is None or not positions:
        return node.columns
    build_keys = {build for _, build in below.join_keys}
    both_keys = build_keys | {probe for probe, _ in below.join_keys}
    newest = {(column.table, column.name, column.scan): column for column in node.columns}  # one that was narrowed
    unmarked = tuple(column for column in node.columns if column.name != MARK)
    ways = (
        unmarked if node.operator is Operator.FILTER and len(unmarked) < len(node.columns) else (),
        tuple(column for column in node.columns if column.name in used),
        tuple(column for column in dict.fromkeys(newest.values()) if column.name in used),
        tuple(column for column in node.columns if column.name in used or column.table is None),
        tuple(column for column in node.columns if column not in build_keys),
        tuple(column for column in node.columns if column not in both_keys),
    )
    return next((columns for columns in ways if len(columns) == max(positions) + 1), node.columns)


def _of_definition(name: str, child: PlanNode) -> PlanColumn | None:
    """Return the column of that name that a common table expression hands up through projections.

    What they project by position is not known for sure: such an expression may hand out its columns in another order
    than the operator it ends with.
    """
    while child.operator is Operator.PROJECT:
        child = child.children[0]
    if child.reference is None:
        return None
    return next((column for column in child.columns if column.name == name), None)


def _through_filters(node: PlanNode) -> Iterator[PlanNode]:
    """Yield the join that a node is, or that it filters."""
    while node.operator is Operator.FILTER:
        node = node.children[0]
    if node.operator is Operator.HASH_JOIN:
        yield node


def _subquery(text: str, inputs: Sequence[PlanColumn]) -> PlanColumn | None:
    """Return the value of a scalar subquery, if a text is that: the only column that was computed."""
    computed = [column for column in inputs if column.table is None and column.name != MARK]
    return computed[0] if text == MARK and len(computed) == 1 else None


def _of_cte(text: str, node: PlanNode) -> PlanColumn | None:
    """Return the column of a common table expression that a projection of it means by ``#[table.column]``."""
    position = _CTE_POSITION.match(text.strip())
    while node.operator in (Operator.PROJECT, Operator.FILTER):
        node = node.children[0]
    if position is None or node.reference is None or node.children or int(position[1]) >= len(node.columns):
        return None
    return node.columns[int(position[1])]


def _likeliest(
    pairs: Sequence[tuple[PlanColumn, PlanColumn]],
    probe: PlanNode,
    build: PlanNode,
    before: Sequence[tuple[PlanColumn, PlanColumn]],
) -> tuple[PlanColumn, PlanColumn]:
    """Return the pair that a join means by two names, each of several columns.

    It asks nothing twice; a column that equals one of the same name and table already, by a join below, is done with;
    of several keys all are of the same two scans; and what nothing was compared with yet has to be at some time.
    """
    equal: list[set[tuple[str | None, str, int | None]]] = []  # columns that joins below made equal
    for _, below in chain(probe.walk(), build.walk()):
        for one, other in below.join_keys:
            both = {(one.table, one.name, one.scan), (other.table, other.name, other.scan)}
            equal = [*(some for some in equal if not some & both), both.union(*(some for some in equal if some & both))]

    def is_done(column: PlanColumn, other: PlanColumn) -> bool:
        mine = next((some for some in equal if (column.table, column.name, column.scan) in some), set())
        return any((table, name) == (other.table, other.name) for table, name, _ in mine)

    def doubts(pair: tuple[PlanColumn, PlanColumn]) -> tuple[int, int, int, int]:
        used = sum(one in earlier for one, earlier in product(pair, before))
        scans = [(a.scan, b.scan) for a, b in before]
        compared = sum((one.table, one.name, one.scan) in some for one, some in product(pair, equal))
        return used, is_done(*pair) + is_done(*pair[::-1]), -scans.count((pair[0].scan, pair[1].scan)), compared

    return min(pairs, key=doubts)


def _equality(condition: str) -> tuple[str, str] | None:
    """Return both sides of a condition that is an equality as a whole."""
    for equal in _EQUALITY.finditer(condition):
        lhs, rhs = condition[: equal.start()], condition[equal.end() :]
        if lhs.count("(") == lhs.count(")"):
            return lhs, rhs
    return None


def _aggregate(node: PlanNode, info: dict[str, Any]) -> PlanNode:
    keys = tuple(_resolve(text, node.columns) for text in _texts(info.get("Groups")))
    calls = tuple(_aggregated(text, node.columns) for text in _texts(info.get("Aggregates")))
    return replace(node, group_keys=keys, columns=(*keys, *calls))


def _aggregated(text: str, inputs: tuple[PlanColumn, ...]) -> PlanColumn:
    call = _AGGREGATE_CALL.match(text)
    if call is None:
        return PlanColumn(text)
    function, argument = call.groups()
    return PlanColumn(text, _AGGREGATE_TYPES.get(function) or _resolve(argument, inputs).data_type)


def _resolve(text: str, inputs: tuple[PlanColumn, ...]) -> PlanColumn:
    text = text.strip()
    position = _POSITION.match(text)
    if position and int(position.group(1)) < len(inputs):
        return inputs[int(position.group(1))]
    narrowed = _NARROWED.match(text)
    if narrowed:
        return replace(_resolve(narrowed[2], inputs), data_type=_spark_type(narrowed[1] or "VARCHAR"))
    cast = _CAST_POSITION.match(text)
    if cast and int(cast.group(1)) < len(inputs):
        return replace(inputs[int(cast.group(1))], data_type=_spark_type(cast.group(2)))
    named = next((column for column in inputs if column.name == text), None)
    if named is not None:
        return named
    return PlanColumn(text, _computed_type(text))


@lru_cache(maxsize=4_096)
def _computed_type(text: str) -> str | None:
    try:
        expression = sqlglot.parse_one(text, read=DIALECT)
    except SqlglotError:
        return None
    while isinstance(expression, exp.Case | exp.Coalesce | exp.Paren):  # of the type of each of its results
        some = expression.args["ifs"][0].args["true"] if isinstance(expression, exp.Case) else expression.this
        expression = some
    if isinstance(expression, exp.Cast):
        return _spark_type(expression.to.sql(DIALECT))
    if isinstance(expression, _TEXTS):
        return "string"
    cast = expression.find(exp.Cast)
    if cast is not None and not isinstance(expression, exp.Func):
        return _spark_type(cast.to.sql(DIALECT))
    if isinstance(expression, exp.Literal):
        return "string" if expression.is_string else "double"
    if isinstance(expression, exp.Predicate | exp.Not | exp.Boolean):
        return "boolean"
    return None


@lru_cache(maxsize=4_096)
def _is_of_rows(text: str) -> bool:
    """Tell whether an expression computes something from columns of one row."""
    try:
        expression = sqlglot.parse_one(text, read=DIALECT)
    except SqlglotError:
        return False
    computes = not isinstance(expression, exp.Column) and expression.find(exp.Column) is not None
    return computes and expression.find(exp.AggFunc, exp.Window) is None


@lru_cache(maxsize=4_096)
def _words_in(text: str) -> frozenset[str]:
    return frozenset(_IDENTIFIER.findall(text))


def _words(text: str, expressions: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the names in a text, and those in the expression that it is an alias of."""
    return _words_in(text).union(*(_words_in(meant) for meant in expressions.get(text.strip().lower(), ())))


def _spark_type(duckdb_type: str) -> str:
    return _SPARK_TYPES.get(duckdb_type.upper(), duckdb_type.lower())


def _columns_of(filters: Sequence[str]) -> frozenset[str]:
    return frozenset().union(*(_columns_in(text) for text in filters))


@lru_cache(maxsize=4_096)
def _columns_in(predicate: str) -> frozenset[str]:
    try:
        return frozenset(column.name for column in sqlglot.parse_one(predicate, read=DIALECT).find_all(exp.Column))
    except SqlglotError:
        return frozenset()


def _texts(value: Any) -> tuple[str, ...]:
    """Return extra_info's way of writing none, one or several texts as a tuple."""
    if value is None or value == "":
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _number(value: Any) -> float | None:
    return float(value) if value is not None else None


def _rows(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isdigit() else None
