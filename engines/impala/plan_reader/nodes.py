"""Entries of an outline -> PlanNodes, bottom up; columns are followed to the tables that they come from.

A common table expression becomes a MATERIALIZE node above what reads it, however the text places it: under a node that
runs the parts in turn, or, distributed, as a tree of its own of which every reader repeats the lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engines.impala.plan_reader.columns import Scan, Visible
from engines.impala.plan_reader.outline import (
    CONSUMER,
    JOIN_BUILD,
    PRODUCER,
    SEQUENCE,
    Entry,
    Outline,
    byte_size,
    metric,
)
from engines.impala.plan_reader.planner import is_classic
from engines.impala.plan_reader.texts import listed, sides, split, words
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
_TRANSPOSED = "CASE valid_tid("  # a key of several groupings at once, when their rows become one's
_CARDINALITY = re.compile(r"\bcardinality=([\w.]*)")
_LIMITS = re.compile(r"\b(LIMIT|OFFSET)=(\d{1,18})\b")
_TABLE = re.compile(r"rows=(\S+) size=(\S+)")
_DIGITS = re.compile(r"\d{1,18}$")
_FILES = re.compile(r"\bpartitions=\d+/\d+ files=(\d{1,18}) size=(\S+)")


class Builder:
    """Builds the tree of nodes; what cannot be told apart becomes one of the outline's notes.

    producers: what keeps the rows of a common table expression, by its name. numbered: names as Calcite writes them.
    """

    def __init__(self, outline: Outline, tables: Sequence[TableShape]) -> None:
        self._entries = outline.entries
        self._apart = outline.producers
        sequences = [entry for entry in outline.entries if entry.label == SEQUENCE]
        self._producers = {producer.bracket: producer for entry in sequences for producer in _producers(entry)}
        self._producers |= self._apart
        self._tables = tables
        self._numbered = not is_classic(outline)
        self._words = self._all_words() if tables else frozenset[str]()
        self._visible: dict[int, Visible] = {}
        self._note = outline.note

    def root(self) -> PlanNode:
        """Return the plan's root. What an entry needs is built before it, and stands after it in the text.

        Except for the rows of a common table expression, which may stand before those who read it.
        """
        needed = {id(entry) for producer in self._producers.values() for entry in producer.walk()}
        built: dict[int, PlanNode] = {}
        for entry in sorted(reversed(self._entries), key=lambda entry: id(entry) not in needed):
            built[id(entry)] = self._node(entry, built)
        root = built[id(self._entries[0])]
        apart = [(name, built[id(producer)]) for name, producer in reversed(self._apart.items())]
        return _materialized(root, apart)  # of two, the one that the other reads is printed below it

    def _node(self, entry: Entry, built: Mapping[int, PlanNode]) -> PlanNode:
        producer = self._producers.get(entry.bracket) if entry.label == CONSUMER else None
        below = _inputs(entry) if producer is None else []
        children = tuple(built[id(child)] for child in below)
        self._visible[id(entry)] = Visible.of([self._visible[id(child)] for child in below])
        cardinality = _cardinality(entry)
        node = PlanNode(
            operator=self._operator(entry, children),
            label=entry.label,
            children=children,
            cardinality=cardinality,
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
                node = self._aggregate(node, entry, below[0], built)
            case Operator.FILTER:
                node = replace(node, predicates=listed(entry.texts("predicates")))
            case Operator.WINDOW:
                added = tuple(PlanColumn(text) for text in listed(entry.texts("functions")))
                node = replace(node, columns=(*node.columns, *added))
            case Operator.TOP_N:
                limits = {name: int(rows) for name, rows in _LIMITS.findall(entry.bracket)}
                ties = _integer(next(entry.texts("limit with ties"), None))
                return replace(node, limit=limits.get("LIMIT", ties), offset=limits.get("OFFSET", 0))
            case Operator.EXCHANGE:
                node = replace(node, distribution=_distribution(entry.bracket))
            case _ if producer is not None:
                definition = built.get(id(producer))
                self._visible[id(entry)] = self._visible.get(id(producer), Visible())
                node = replace(
                    node, reference=entry.bracket, columns=definition.columns if definition is not None else ()
                )
            case _ if entry.label == SEQUENCE and entry.first is not None:
                kept_by = [(part.bracket, built[id(part)]) for part in _producers(entry)]
                return _materialized(children[0], kept_by, entry.identifier)
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
        predicates = listed(entry.texts(*_SCAN_FILTERS))
        targets = (part.partition(" -> ")[2] for part in listed(entry.texts("runtime filters")))
        scan = Scan.of(entry.bracket, self._tables, (*predicates, *targets), numbered=self._numbered)
        self._visible[id(entry)] = Visible((scan,))
        names = [name for name in scan.types if name in self._words] if scan.types else sorted(scan.own)
        columns = tuple(PlanColumn(name, scan.types.get(name), scan.table) for name in names)
        return replace(
            node, columns=columns, scanned=columns, table=scan.table, predicates=predicates, files=_files_read(entry)
        )

    def _join(self, node: PlanNode, entry: Entry, below: Sequence[Entry]) -> PlanNode:
        probe, build = (self._visible[id(child)] for child in below[:2])
        keys = tuple(
            (probe.column(left, numbered=self._numbered), build.column(right, numbered=self._numbered))
            for left, right in map(sides, listed(entry.texts("hash predicates")))
        )
        others = listed(entry.texts(*_JOIN_FILTERS))
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
        table = next((branch for branch in entry.branches if branch.label == JOIN_BUILD), None)
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

    def _aggregate(self, node: PlanNode, entry: Entry, below: Entry, built: Mapping[int, PlanNode]) -> PlanNode:
        visible = self._visible[id(below)]
        classes = [split(text) for text in entry.texts("group by")] or [()]
        if len(classes) > 1:
            self._note(f"line {entry.line}: {len(classes)} groupings at once; the finest one is taken")
        texts = max(classes, key=lambda names: sum(name != "NULL" for name in names))
        keys = tuple(visible.column(text, numbered=self._numbered) for text in texts)
        transposed = any(text.startswith(_TRANSPOSED) for text in texts)
        first_phase = _first_phase(below, finished=transposed) if entry.bracket != "STREAMING" else None
        grouped = () if first_phase is None else _unlimited(built[id(first_phase)]).group_keys
        if grouped and len(grouped) == len(keys):
            keys = grouped
            renamed = dict(zip(texts, keys, strict=True))
            self._visible[id(entry)] = Visible(visible.scans, {**visible.renamed, **renamed})
        outputs = tuple(PlanColumn(text) for text in listed(entry.texts("output")))
        return replace(
            node,
            label=STREAMING_AGGREGATE if entry.bracket == "STREAMING" else node.label,
            group_keys=keys,
            columns=(*keys, *outputs),
            predicates=listed(entry.texts("having", "predicates")),
        )

    def _all_words(self) -> frozenset[str]:
        texts = (text for entry in self._entries for details in entry.details.values() for text in details)
        return frozenset(part for word in words(texts) for part in word.split("."))


def _producers(sequence: Entry) -> list[Entry]:
    """Return the common table expressions of a sequence in the order in which they are kept."""
    return [entry for entry in reversed(sequence.branches) if entry.label == PRODUCER]


def _materialized(
    body: PlanNode, definitions: Sequence[tuple[str, PlanNode]], identifier: str | None = None
) -> PlanNode:
    """Return a plan above which the rows of common table expressions are kept, the first of them first and on top."""
    for number, (name, producer) in reversed(list(enumerate(definitions))):
        body = PlanNode(
            Operator.MATERIALIZE,
            SEQUENCE,
            (producer, body),
            body.cardinality,
            body.columns,
            reference=name,
            identifier=None if number else identifier,
            placement=body.placement,
            resources=Resources(body.resources.row_bytes) if body.resources else None,
        )
    return body


def _inputs(entry: Entry) -> list[Entry]:
    """Return what an entry reads: the one below it, then the branches, which are printed last one first."""
    inputs = [entry.first] if entry.first is not None else []
    for branch in reversed(entry.branches):
        if branch.label == JOIN_BUILD and branch.identifier is None:
            inputs += [branch.first] if branch.first is not None else []
        else:
            inputs.append(branch)
    return inputs


def _cardinality(entry: Entry) -> float | None:
    """Return the rows that the engine expects."""
    for text in entry.plain:
        match = _CARDINALITY.search(text)
        if match is not None:
            return metric(match.group(1))
    return None


def _resources(entry: Entry) -> Resources | None:
    names = ("row-size", "mem-estimate", "mem-reservation", "spill-buffer")
    sizes = [byte_size(entry.value(name)) for name in names]
    return Resources(*sizes) if any(size is not None for size in sizes) else None


def _files_read(entry: Entry) -> FilesRead | None:
    for text in entry.plain:
        match = _FILES.search(text)
        size = byte_size(match.group(2)) if match else None
        if match is None or size is None:
            continue
        range_rows, range_bytes = metric(entry.value("max-scan-range-rows")), None
        of_table = _TABLE.match(next(entry.texts("table"), ""))
        table_rows, table_bytes = (metric(of_table[1]), byte_size(of_table[2])) if of_table else (None, None)
        if range_rows and table_rows and table_bytes:
            range_bytes = min(size, table_bytes * range_rows / table_rows)
        return FilesRead(int(match.group(1)), size, range_bytes, range_rows)
    return None


def _distribution(text: str) -> Distribution | None:
    if text == "BROADCAST":
        return Distribution.BROADCAST
    return Distribution.PARTITIONED if text == "PARTITIONED" or text.startswith("HASH(") else None


def _unlimited(node: PlanNode) -> PlanNode:
    """Return what a LIMIT that came of the same entry limits."""
    return node.children[0] if node.operator is Operator.LIMIT else node


def _first_phase(entry: Entry, *, finished: bool) -> Entry | None:
    """Return the aggregate whose groups arrive through an exchange, or from a cache, to be merged.

    finished: whether it may be one that is complete in itself.
    """
    below: Entry | None = entry
    while below is not None and (below.label.endswith("EXCHANGE") or below.label == "TUPLE CACHE"):
        below = below.first
    if below is None or below.label != "AGGREGATE":
        return None
    return below if finished or below.bracket != "FINALIZE" else None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _DIGITS.match(text) else None
