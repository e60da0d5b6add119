"""Entries of an outline -> PlanNodes, bottom up; columns are followed to the tables that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from selector.explain.impala.outline import Entry, Outline, byte_size, metric
from selector.plan import (
    Distribution,
    FilesRead,
    JoinType,
    Operator,
    PlanColumn,
    PlanNode,
    Resources,
    TableShape,
)

STREAMING_AGGREGATE = "STREAMING AGGREGATE"  # a first phase, which hands on what it has no memory for
NULL_AWARE_JOIN = "NULL AWARE HASH JOIN"  # of NOT IN: it keeps rows with a NULL key apart

_OPERATORS = {
    "HASH JOIN": Operator.HASH_JOIN,
    "DELETE EVENTS HASH JOIN": Operator.HASH_JOIN,
    "NESTED LOOP JOIN": Operator.NESTED_LOOP_JOIN,
    "AGGREGATE": Operator.AGGREGATE,
    "SORT": Operator.SORT,
    "TOP-N": Operator.TOP_N,
    "ANALYTIC": Operator.WINDOW,
    "SELECT": Operator.FILTER,
    "UNION": Operator.UNION,
    "EXCHANGE": Operator.EXCHANGE,
    "MERGING-EXCHANGE": Operator.EXCHANGE,
    "EMPTYSET": Operator.EMPTY,
}
_INPUTS = {Operator.HASH_JOIN: 2, Operator.NESTED_LOOP_JOIN: 2, Operator.SCAN: 0, Operator.EMPTY: 0}
_ONE_INPUT = frozenset(
    (Operator.AGGREGATE, Operator.SORT, Operator.TOP_N, Operator.WINDOW, Operator.FILTER, Operator.EXCHANGE)
)
_JOIN_TYPES = {
    "INNER JOIN": JoinType.INNER,
    "LEFT OUTER JOIN": JoinType.LEFT,
    "RIGHT OUTER JOIN": JoinType.RIGHT,
    "FULL OUTER JOIN": JoinType.FULL,
    "LEFT SEMI JOIN": JoinType.SEMI,
    "LEFT ANTI JOIN": JoinType.ANTI,
    "NULL AWARE LEFT ANTI JOIN": JoinType.ANTI,
    "ICEBERG DELETE JOIN": JoinType.ANTI,
    "RIGHT SEMI JOIN": JoinType.RIGHT_SEMI,
    "RIGHT ANTI JOIN": JoinType.RIGHT_ANTI,
    "CROSS JOIN": JoinType.CROSS,
}
_SCAN_FILTERS = (
    "predicates",
    "partition predicates",
    "data source predicates",
    "kudu predicates",
    "key predicates",
)
_JOIN_FILTERS = ("join predicates", "other join predicates", "other predicates", "predicates")
_EQUALITIES = (" = ", " IS NOT DISTINCT FROM ")
_BRACKETS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[()]|, | = | IS NOT DISTINCT FROM ")
_NAME = re.compile(r"(?:(?:`[^`]+`|[A-Za-z_]\w*)\.)*(?:`[^`]+`|[A-Za-z_]\w*)$")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_CARDINALITY = re.compile(r"\bcardinality=([\w.]*) ?(?:\(([^)]*)\))?")
_FILTERED_FROM = re.compile(r"filtered from ([\w.]+)")
_LIMITS = re.compile(r"\b(LIMIT|OFFSET)=(\d{1,18})\b")
_TABLE = re.compile(r"rows=(\S+) size=(\S+)")
_DIGITS = re.compile(r"\d{1,18}$")
_FILES = re.compile(r"\bpartitions=\d+/\d+ files=(\d{1,18}) size=(\S+)")


@dataclass(slots=True)
class _Scan:
    """A scan as names can be told by it. names: what stands before a column's dot; own: columns it names itself."""

    table: str | None
    names: frozenset[str]
    types: Mapping[str, str]
    own: set[str] = field(default_factory=set)

    def has(self, column: str) -> bool:
        return column in self.types if self.types else column in self.own


@dataclass(slots=True)
class _Visible:
    """What names below a node can mean. renamed: keys of an aggregate that its second phase calls otherwise."""

    scans: tuple[_Scan, ...] = ()
    renamed: Mapping[str, PlanColumn] = field(default_factory=dict)


class Builder:
    """Builds the tree of nodes; what cannot be told apart becomes one of the outline's notes."""

    def __init__(self, outline: Outline, tables: Sequence[TableShape]) -> None:
        self._entries = outline.entries
        self._tables = tables
        self._words = self._all_words() if tables else frozenset[str]()
        self._visible: dict[int, _Visible] = {}
        self._note = outline.note

    def root(self) -> PlanNode:
        """Return the plan's root. Every entry stands after the one above it, so that the last is built first."""
        built: dict[int, PlanNode] = {}
        for entry in reversed(self._entries):
            built[id(entry)] = self._node(entry, built)
        return built[id(self._entries[0])]

    def _node(self, entry: Entry, built: Mapping[int, PlanNode]) -> PlanNode:
        below = _inputs(entry)
        children = tuple(built[id(child)] for child in below)
        self._visible[id(entry)] = self._merged(below)
        cardinality, unfiltered = _cardinalities(entry)
        node = PlanNode(
            operator=self._operator(entry, children),
            label=entry.label,
            children=children,
            cardinality=cardinality,
            unfiltered=unfiltered,
            columns=children[0].columns if children else (),
            identifier=entry.identifier,
            placement=entry.placement,
            resources=_resources(entry),
        )
        match node.operator:
            case Operator.SCAN:
                node = self._scan(replace(node, children=()), entry)
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                node = self._join(replace(node, children=children[:2]), entry, below)
            case Operator.AGGREGATE:
                node = self._aggregate(node, entry, below)
            case Operator.FILTER:
                node = replace(node, predicates=_listed(entry.texts("predicates")))
            case Operator.WINDOW:
                added = tuple(PlanColumn(text) for text in _listed(entry.texts("functions")))
                node = replace(node, columns=(*node.columns, *added))
            case Operator.TOP_N:
                limits = {name: int(rows) for name, rows in _LIMITS.findall(entry.bracket)}
                ties = _integer(next(entry.texts("limit with ties"), None))
                return replace(node, limit=limits.get("LIMIT", ties), offset=limits.get("OFFSET", 0))
            case Operator.EXCHANGE:
                node = replace(node, distribution=_distribution(entry.bracket))
            case _:
                pass
        limit = _integer(next(entry.texts("limit"), None))
        if limit is None:
            return node
        return PlanNode(
            Operator.LIMIT,
            "LIMIT",
            (node,),
            cardinality,
            node.columns,
            limit=limit,
            placement=node.placement,
            resources=Resources(node.resources.row_bytes) if node.resources else None,
        )

    def _operator(self, entry: Entry, children: Sequence[PlanNode]) -> Operator:
        if entry.identifier is None:
            return Operator.OTHER
        operator = _OPERATORS.get(entry.label, Operator.OTHER)
        if entry.label.startswith(("SCAN ", "VIRTUAL SCAN")):
            operator = Operator.SCAN
        wanted = _INPUTS.get(operator, 1 if operator in _ONE_INPUT else None)
        if wanted is not None and len(children) != wanted:
            self._note(f"line {entry.line}: {entry.label} with {len(children)} inputs instead of {wanted}")
            if len(children) < wanted:
                return Operator.OTHER
        return operator

    def _scan(self, node: PlanNode, entry: Entry) -> PlanNode:
        source = entry.bracket.split(", ")[0].split()
        printed = source[0].replace("`", "") if source else ""
        alias = source[1] if len(source) > 1 else None
        shape = _shape(printed, self._tables)
        table = shape.name if shape else printed or None
        names = {alias} if alias else {printed, printed.rpartition(".")[2]}
        scan = _Scan(table, frozenset(names), shape.columns if shape else {})
        predicates = _listed(entry.texts(*_SCAN_FILTERS))
        targets = (part.partition(" -> ")[2] for part in _listed(entry.texts("runtime filters")))
        for word in _words((*predicates, *targets)):
            before, _, column = word.rpartition(".")
            if not before or before in names:
                scan.own.add(column)
        self._visible[id(entry)] = _Visible((scan,))
        known = [name for name in scan.types if name in self._words] if scan.types else sorted(scan.own)
        columns = tuple(PlanColumn(name, scan.types.get(name), table) for name in known)
        return replace(
            node, columns=columns, scanned=columns, table=table, predicates=predicates, files=_files_read(entry)
        )

    def _join(self, node: PlanNode, entry: Entry, below: Sequence[Entry]) -> PlanNode:
        probe, build = (self._visible[id(child)] for child in below[:2])
        keys = tuple(
            (self._column(left, probe), self._column(right, build))
            for left, right in map(_sides, _listed(entry.texts("hash predicates")))
        )
        others = _listed(entry.texts(*_JOIN_FILTERS))
        kind, _, distribution = entry.bracket.partition(", ")
        join_type = _JOIN_TYPES.get(kind, JoinType.INNER)
        if kind not in _JOIN_TYPES:
            self._note(f"line {entry.line}: a join of unknown type {kind!r} is taken for an inner one")
        if join_type is JoinType.CROSS and others:
            join_type = JoinType.INNER
        match join_type:
            case JoinType.SEMI | JoinType.ANTI:
                columns = node.children[0].columns
            case JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
                columns = node.children[1].columns
            case _:
                columns = (*node.children[0].columns, *node.children[1].columns)
        table = next((branch for branch in entry.branches if branch.label == "JOIN BUILD"), None)
        resources = _resources(entry)
        if table is not None and resources is not None:
            of_table = _resources(table) or Resources()
            resources = replace(of_table, row_bytes=resources.row_bytes)
        return replace(
            node,
            label=NULL_AWARE_JOIN if kind.startswith("NULL AWARE") else node.label,
            join_type=join_type,
            join_keys=keys,
            predicates=others,
            columns=columns,
            distribution=_distribution(distribution),
            build_placement=table.placement if table is not None else None,
            resources=resources,
        )

    def _aggregate(self, node: PlanNode, entry: Entry, below: Sequence[Entry]) -> PlanNode:
        visible = self._visible[id(below[0])]
        classes = [_split(text) for text in entry.texts("group by")] or [()]
        if len(classes) > 1:
            self._note(f"line {entry.line}: {len(classes)} groupings at once; the finest one is taken")
        texts = max(classes, key=lambda names: sum(name != "NULL" for name in names))
        keys = tuple(self._column(text, visible) for text in texts)
        first_phase = _first_phase(node.children[0])
        if entry.bracket != "STREAMING" and first_phase is not None and len(first_phase.group_keys) == len(keys):
            keys = first_phase.group_keys
            renamed = dict(zip(texts, keys, strict=True))
            self._visible[id(entry)] = _Visible(visible.scans, {**visible.renamed, **renamed})
        outputs = tuple(PlanColumn(text) for text in _listed(entry.texts("output")))
        return replace(
            node,
            label=STREAMING_AGGREGATE if entry.bracket == "STREAMING" else node.label,
            group_keys=keys,
            columns=(*keys, *outputs),
            predicates=_listed(entry.texts("having", "predicates")),
        )

    def _merged(self, below: Sequence[Entry]) -> _Visible:
        parts = [self._visible[id(child)] for child in below]
        if len(parts) == 1:
            return parts[0]
        renamed = {name: column for part in parts for name, column in part.renamed.items()}
        return _Visible(tuple(scan for part in parts for scan in part.scans), renamed)

    def _column(self, text: str, visible: _Visible) -> PlanColumn:
        """Tell which table a column comes from; an expression and what cannot be told have none."""
        known = visible.renamed.get(text)
        if known is not None:
            return known
        if not _NAME.match(text):
            return PlanColumn(text)
        before, _, column = text.replace("`", "").rpartition(".")
        if before:
            found = [scan for scan in visible.scans if before in scan.names]
        else:
            found = [scan for scan in visible.scans if scan.has(column)]
            if not found and len(visible.scans) == 1 and not visible.scans[0].types:
                found = list(visible.scans)
        tables = {scan.table for scan in found}
        if len(tables) != 1:
            return PlanColumn(column if found else text.replace("`", ""))
        return PlanColumn(column, found[0].types.get(column), found[0].table)

    def _all_words(self) -> frozenset[str]:
        texts = (text for entry in self._entries for found in entry.details.values() for text in found)
        return frozenset(part for word in _words(texts) for part in word.split("."))


def _inputs(entry: Entry) -> list[Entry]:
    """Return what an entry reads: the one below it, then the branches, which are printed last one first."""
    found = [entry.first] if entry.first is not None else []
    for branch in reversed(entry.branches):
        if branch.label == "JOIN BUILD" and branch.identifier is None:
            found += [branch.first] if branch.first is not None else []
        else:
            found.append(branch)
    return found


def _cardinalities(entry: Entry) -> tuple[float | None, float | None]:
    """Return the rows that the engine expects, and those before filters from joins."""
    for text in entry.plain:
        found = _CARDINALITY.search(text)
        if found is not None:
            unfiltered = _FILTERED_FROM.search(found.group(2) or "")
            return metric(found.group(1)), metric(unfiltered.group(1)) if unfiltered else None
    return None, None


def _resources(entry: Entry) -> Resources | None:
    names = ("row-size", "mem-estimate", "mem-reservation", "spill-buffer")
    sizes = [byte_size(entry.value(name)) for name in names]
    return Resources(*sizes) if any(size is not None for size in sizes) else None


def _files_read(entry: Entry) -> FilesRead | None:
    for text in entry.plain:
        found = _FILES.search(text)
        size = byte_size(found.group(2)) if found else None
        if found is None or size is None:
            continue
        range_rows, range_bytes = metric(entry.value("max-scan-range-rows")), None
        of_table = _TABLE.match(next(entry.texts("table"), ""))
        table_rows, table_bytes = (metric(of_table[1]), byte_size(of_table[2])) if of_table else (None, None)
        if range_rows and table_rows and table_bytes:
            range_bytes = min(size, table_bytes * range_rows / table_rows)
        return FilesRead(int(found.group(1)), size, range_bytes, range_rows)
    return None


def _distribution(text: str) -> Distribution | None:
    if text == "BROADCAST":
        return Distribution.BROADCAST
    return Distribution.PARTITIONED if text == "PARTITIONED" or text.startswith("HASH(") else None


def _first_phase(node: PlanNode) -> PlanNode | None:
    """Return the aggregate whose groups arrive through an exchange, to be merged."""
    while node.operator in (Operator.EXCHANGE, Operator.LIMIT):
        node = node.children[0]
    return node if node.operator is Operator.AGGREGATE else None


def _shape(printed: str, tables: Iterable[TableShape]) -> TableShape | None:
    """Return the table of this name; the catalog may call it without its database."""
    last = printed.rpartition(".")[2]
    found = [table for table in tables if table.name in (printed, last)]
    return next((table for table in found if table.name == printed), found[0] if len(found) == 1 else None)


def _listed(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the expressions of lists that are separated by commas."""
    return tuple(part for text in texts for part in _split(text))


def _split(text: str) -> tuple[str, ...]:
    """Split at the commas that stand outside of brackets and quotes."""
    if ", " not in text:
        return (text,)
    ends = [position for mark, position in _outside(text) if mark == ", "]
    starts = [0, *(end + 2 for end in ends)]
    return tuple(text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True))


def _sides(equality: str) -> tuple[str, str]:
    """Split an equality into its probe and its build side."""
    for mark, position in _outside(equality):
        if mark in _EQUALITIES:
            return equality[:position], equality[position + len(mark) :]
    return equality, ""


def _outside(text: str) -> Iterator[tuple[str, int]]:
    depth = 0
    for found in _BRACKETS.finditer(text):
        mark = found.group()
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth -= 1
        elif depth == 0:
            yield mark, found.start()


def _words(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _WORD.findall(_STRING.sub("", text.replace("`", "")))


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _DIGITS.match(text) else None
