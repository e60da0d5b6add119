"""The lines of Impala's EXPLAIN as a tree of entries, with their details by name; nothing is interpreted yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from selector.plan import Placement, UnreadablePlan

MAXIMUM_DEPTH = 120  # entries above one another; TPC-DS's deepest has 34
MAXIMUM_NOTES = 20
JOIN_BUILD = "JOIN BUILD"  # a sink: the table of a join that another fragment probes
LOCAL_SINK = "LOCAL MULTI SINK"  # a sink: the rows of a common table expression
PRODUCER, CONSUMER = "CTE PRODUCER", "CTE CONSUMER"  # nodes: they keep and read the rows of one, named in brackets
SEQUENCE = "SEQUENCE"  # one node that runs after the others, which are common table expressions
_QUOTED = 60  # characters of a line that an error or a note repeats

_UNIT = 3  # characters that one level is indented by
_MARGIN = 2  # characters that VERBOSE indents a fragment by, except its own line
_INDENTED = re.compile(r"  (?:[|A-Z]|\d+:|empty scan)")
_NODE = re.compile(r"((?:[| ]  )*)(\|--)?(\d+):([A-Za-z][^\[]*?)(?: \[(.*?)\]?)?$")
_FRAGMENT = re.compile(r"((?:[| ]  )*)(\|--)?(F\d+):PLAN FRAGMENT\b(.*)$")
_SINK = re.compile(r"((?:[| ]  )*)(\|--)?([A-Z]{2,}[A-Z0-9_ -]*[A-Z0-9])(?: (?:\[(.*?)\]?|table=(.*)))?$")
_EMPTY_SCAN = re.compile(r"((?:[| ]  )*)(\|--)?empty scan node$")
_KEYED = re.compile(r"([A-Za-z][A-Za-z/ -]*?)( on [\w.`]+)?:(?: (.*))?$")
_SENT_TO = re.compile(r"\bEXCHANGE=(\d+)")
_AFTER_STATEMENT = re.compile(r"F?\d+:[A-Z]|PLAN-ROOT SINK$")
_BYTES = re.compile(r"(\d{1,18}(?:\.\d+)?)(B|[KMGTP]B)?$")
_METRIC = re.compile(r"(\d{1,18}(?:\.\d+)?)([KMGBT]?)$")
_UNITS = {None: 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50}
_METRICS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}

# Details by the word before their colon. Those of READ are kept; the others are known and say nothing that is needed.
_READ = frozenset(
    (
        "predicates",
        "partition predicates",
        "data source predicates",
        "kudu predicates",
        "key predicates",
        "hash predicates",
        "join predicates",
        "other predicates",
        "other join predicates",
        "having",
        "output",
        "group by",
        "functions",
        "limit",
        "limit with ties",
        "offset",
        "runtime filters",
        "fk/pk conjuncts",
        "table",
        "order by",
        "join table id",
    )
)
_SKIPPED = frozenset(
    (
        "partition by",
        "window",
        "partition limit",
        "source expr",
        "output exprs",
        "build expressions",
        "join table id",
        "in pipelines",
        "stored statistics",
        "materialized",
        "partitions",
        "columns",
        "columns missing stats",
        "pass-through-operands",
        "parquet statistics predicates",
        "parquet dictionary predicates",
        "orc statistics predicates",
        "hbase filters",
        "start key",
        "stop key",
        "file formats",
        "Iceberg snapshot id",
        "skipped Iceberg predicates",
        "equality predicates",
        "result expressions",
        "filter predicates",
        "partition keys",
        "type",
        "cache key",
        "skip correctness verification",
        "input scan node ids",
        "estimated serialized size",
        "estimated serialized size per node",
        "cumulative processing cost",
        "cache read processing cost",
        "cache write processing cost",
        "deterministic scan range assignment",
        "schedule scan ranges oldest to newest",
        "Per-Host Resources",
        "Per-Instance Resources",
        "Per-Host Shared Resources",
    )
)
_ENDS = frozenset(("tuple cache key", "tuple cache ineligibility reasons"))  # a trace of any form follows them
_RELATIONAL = re.compile(r"Impala[A-Z]\w+(?:\(|$)")  # the optimizer's tree, above the plan
_PLAIN = re.compile(
    r"Class \d+$|CASE \d+: |->|clear file path slot$|source-exprs=|unpivot-data-exprs=|.*\bpartitions="
    r"|.*\bmem-estimate=|.*\b(?:row-size|cardinality|cost|tuple-ids)=|extrapolated-rows="
    r"|max-scan-range-rows=|.*-table-id=|parent-subplan=|constant-operands=|partition key scan"
    r"|\S+:\S+ (?:NOT_EQUAL|EQUAL|LESS|GREATER)|missing |max-parallelism=|.*\bsegment-costs=|.*\bfiles="
    r"|est-scan-range=|.*-id="
)


@dataclass(slots=True, eq=False)
class Entry:
    """A node, or a sink, whose identifier is None, as printed.

    first: what it reads and what is printed below it; branches: what hangs on it. details: texts by the words before
    their colon; plain: the other details.
    """

    line: int
    identifier: str | None
    label: str
    bracket: str
    placement: Placement | None = None
    first: Entry | None = None
    branches: list[Entry] = field(default_factory=list)
    details: dict[str, list[str]] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)

    def walk(self) -> Iterator[Entry]:
        """Yield this entry and all that hang below it, on any level."""
        waiting = [self]
        while waiting:
            entry = waiting.pop()
            yield entry
            waiting += [below for below in (entry.first, *entry.branches) if below is not None]

    def texts(self, *names: str) -> Iterator[str]:
        """Yield the non-empty texts of these details."""
        for name in names:
            yield from filter(None, self.details.get(name, ()))

    def value(self, name: str) -> str | None:
        """Return what follows ``name=`` in a detail without a colon."""
        prefix = f"{name}="
        for text in self.plain:
            for word in text.split():
                if word.startswith(prefix):
                    return word[len(prefix) :]
        return None


@dataclass(slots=True)
class Outline:
    """All entries in the order of the text, the root first, and what the header says.

    producers: what writes the rows of a common table expression, by its name, where it stands beside the plan and not
    in it. relational: whether the optimizer's own tree is printed above the plan.
    """

    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    producers: dict[str, Entry] = field(default_factory=dict)
    reservation_bytes: float | None = None
    estimate_bytes: float | None = None
    relational: bool = False

    @classmethod
    def of(cls, text: str) -> Outline:
        """Read the text; raises UnreadablePlan where it has no node at all or is nested beyond reason."""
        lines = _unboxed(text)
        outline = cls()
        _Lines(outline).read(lines)
        if not any(entry.identifier is not None for entry in outline.entries):
            number, line = next(((n, line) for n, line in lines if line.strip()), (1, ""))
            raise UnreadablePlan(f"line {number}: not an Impala plan, it has no node: {line.strip()[:_QUOTED]!r}")
        return outline

    def note(self, text: str) -> None:
        """Keep what could not be understood, up to a reasonable number of times."""
        if len(self.notes) < MAXIMUM_NOTES and text not in self.notes:
            self.notes.append(text)


class _Lines:
    """Goes through the lines once. latest: per level, the entry that the next one on that level stands below.

    VERBOSE prints a tree for each fragment, indented by a margin; other levels print one for all of them, and beside it
    one for each common table expression. roots: the first entries of all trees.
    """

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._latest: list[Entry | None] = []
        self._roots: list[Entry] = []
        self._placement: Placement | None = None
        self._owner: Entry | None = None
        self._branching = False
        self._opened = self._fragmented = False

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        skipping = False
        for number, line in lines:
            line = line.rstrip()
            indented = self._fragmented and _INDENTED.match(line) is not None
            line = line[_MARGIN:] if indented else line
            content = line.lstrip("| ")
            if skipping:
                skipping = bool(content) and not _AFTER_STATEMENT.match(content)
            if skipping or not content:
                continue
            if content.startswith("Analyzed query:"):
                skipping = True
            elif content.startswith("-----"):
                if self._outline.entries:
                    break
            elif (beginning := _entry(number, line, content)) is not None:
                entry, level, branches = beginning
                apart = (entry.label == LOCAL_SINK and level == 0) or (indented and self._opened)
                self._place(entry, level, branches=branches, apart=apart)
            elif not self._fragment(line):
                self._detail(number, content)
        self._connect()
        self._measure()

    def _fragment(self, line: str) -> bool:
        fragment = _FRAGMENT.match(line)
        if fragment is None:
            return False
        indent, branch, name, rest = fragment.groups()
        if not indent and branch is None:
            self._opened = self._fragmented = True
        self._branching = self._branching or branch is not None
        hosts, instances = (_integer(re.search(rf"\b{word}=(\d{{1,18}})\b", rest)) for word in ("hosts", "instances"))
        self._placement = Placement(name, hosts or 1, instances or hosts or 1)
        self._owner = None
        return True

    def _place(self, entry: Entry, level: int, *, branches: bool, apart: bool) -> None:
        """Hang an entry below the one above it; one that hangs on nothing goes below the last one there is."""
        if self._branching:  # the branch began with the line of its fragment
            level, branches = level if branches else max(0, level - 1), True
        self._branching = self._opened = False
        if apart:
            self._latest = []
        above = self._latest[level] if level < len(self._latest) else None
        level += branches
        if apart or not self._outline.entries:
            self._roots.append(entry)
        elif above is None:
            above = self._outline.entries[-1]
            self._outline.note(f"line {entry.line}: hangs on nothing")
        if self._placement is not None:
            entry.placement, self._placement = self._placement, None
        if above is not None:
            entry.placement = entry.placement or above.placement
            if branches or above.first is not None:
                above.branches.append(entry)
            else:
                above.first = entry
        level = min(level, MAXIMUM_DEPTH)
        del self._latest[level:]
        self._latest += [None] * (level - len(self._latest))
        self._latest.append(entry)
        self._outline.entries.append(entry)
        self._owner = entry

    def _connect(self) -> None:
        """Hang each tree on what reads its rows; that is printed above it."""
        entries = self._outline.entries
        exchanges = {entry.identifier: entry for entry in entries if entry.label.endswith("EXCHANGE")}
        joins = {entry.value("hash-table-id") or next(entry.texts("join table id"), None): entry for entry in entries}
        for root in self._roots[1:]:
            reader, rows = None, root
            if root.label == LOCAL_SINK and root.first is not None:
                self._outline.producers.setdefault(root.bracket.rpartition(", ")[2], root.first)
                continue
            if root.label == "DATASTREAM SINK" and root.first is not None:
                sent = _SENT_TO.search(root.bracket)
                reader, rows = exchanges.get(sent[1]) if sent else None, root.first
            elif root.label == JOIN_BUILD:
                reader = joins.get(root.value("join-table-id") or "")
            if reader is None or reader.line >= root.line:
                self._outline.note(f"line {root.line}: hangs on nothing")
                reader = self._roots[0]
            if reader.first is None:
                reader.first = rows
            else:
                reader.branches.append(rows)

    def _measure(self) -> None:
        """Refuse a plan that is nested too deep; each common table expression is a level of its own."""
        depths: dict[int, int] = {}
        for entry in self._outline.entries:
            depth = depths.setdefault(id(entry), len(self._outline.producers))
            if depth > MAXIMUM_DEPTH:
                raise UnreadablePlan(f"line {entry.line}: nested deeper than {MAXIMUM_DEPTH} levels")
            below = depth + max(1, len(entry.branches) if entry.label == SEQUENCE else 1)
            for child in (entry.first, *entry.branches):
                depths[id(child)] = max(below, depths.get(id(child), 0))

    def _detail(self, number: int, content: str) -> None:
        keyed = _KEYED.match(content)
        name, nested, text = keyed.groups() if keyed else ("", None, None)
        if name == "Max Per-Host Resource Reservation":
            self._outline.reservation_bytes = _memory(content)
        elif name == "Per-Host Resource Estimates":
            self._outline.estimate_bytes = _memory(content)
        elif self._owner is None:  # the rest of the header, or the resources of a fragment
            self._outline.relational = self._outline.relational or _RELATIONAL.match(content) is not None
        elif name in _ENDS:
            self._owner = None
        elif "cost-total=" in content:
            return  # of a processor
        elif nested is not None and name.endswith("predicates"):
            return  # of the elements of a nested column, not of the table's rows
        elif name in _READ:
            self._owner.details.setdefault(name, []).append((text or "").strip())
        elif name not in _SKIPPED:
            self._owner.plain.append(content)
            if not _PLAIN.match(content):
                self._outline.note(f"line {number}: not understood: {content[:_QUOTED]!r}")


def _entry(number: int, line: str, content: str) -> tuple[Entry, int, bool] | None:
    """Read a line that begins an entry: its level, and whether it hangs there as a branch."""
    if content[0].isdigit() or content.startswith("--"):
        node = _NODE.match(line)
        if node is not None:
            indent, branch, identifier, label, bracket = node.groups()
            return Entry(number, identifier, label.strip(), bracket or ""), len(indent) // _UNIT, branch is not None
    empty = _EMPTY_SCAN.match(line)
    if empty is not None:  # of HBase, where no row can match: it has neither a number nor a name
        return Entry(number, "", "EMPTYSET", ""), len(empty.group(1)) // _UNIT, empty.group(2) is not None
    if not content[:2].isupper() and not content.startswith("--"):
        return None
    sink = _SINK.match(line)
    if sink is None:
        return None
    indent, branch, label, bracket, table = sink.groups()
    return Entry(number, None, label, bracket or table or ""), len(indent) // _UNIT, branch is not None


def _unboxed(text: str) -> list[tuple[int, str]]:
    """Return numbered lines, without the box that impala-shell draws around them."""
    lines = list(enumerate(text.split("\n"), start=1))
    if not text.lstrip().startswith("+--"):
        return lines
    return [
        (number, line.strip()[2:].removesuffix("|").rstrip())
        for number, line in lines
        if line.strip().startswith("| ") and line.rstrip().endswith("|")
    ]


def byte_size(text: str | None) -> float | None:
    """Read ``9.84MB``; None for what is no size."""
    match = _BYTES.match(text or "")
    return float(match.group(1)) * _UNITS[match.group(2)] if match else None


def metric(text: str | None) -> float | None:
    """Read ``287.51K``; None for ``unavailable`` and what is no number."""
    match = _METRIC.match(text or "")
    return float(round(float(match.group(1)) * _METRICS[match.group(2)])) if match else None


def _memory(content: str) -> float | None:
    match = re.search(r"\bMemory=(\S+)", content)
    return byte_size(match.group(1)) if match else None


def _integer(match: re.Match[str] | None) -> int | None:
    return int(match.group(1)) if match else None
