"""The lines of Impala's EXPLAIN as a tree of entries, with their details by name; nothing is interpreted yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from selector.plan import Placement, UnreadablePlan

MAXIMUM_DEPTH = 120  # entries above one another; TPC-DS's deepest has 34
MAXIMUM_NOTES = 20
_QUOTED = 60  # characters of a line that an error or a note repeats

_UNIT = 3  # characters that one level is indented by
_NODE = re.compile(r"((?:[| ]  )*)(\|--)?(\d+):([A-Za-z][^\[]*?)(?: \[(.*?)\]?)?$")
_FRAGMENT = re.compile(r"((?:[| ]  )*)(\|--)?(F\d+):PLAN FRAGMENT\b(.*)$")
_SINK = re.compile(r"((?:[| ]  )*)(\|--)?([A-Z]{2,}[A-Z0-9_ -]*[A-Z0-9])(?: (?:\[(.*?)\]?|table=(.*)))?$")
_EMPTY_SCAN = re.compile(r"((?:[| ]  )*)(\|--)?empty scan node$")
_KEYED = re.compile(r"([A-Za-z][A-Za-z/ -]*?)( on [\w.`]+)?:(?: (.*))?$")
_AFTER_STATEMENT = re.compile(r"F?\d+:[A-Z]|PLAN-ROOT SINK$")
_BYTES = re.compile(r"(\d{1,18}(?:\.\d+)?)(B|[KMGTP]B)?$")
_METRIC = re.compile(r"(\d{1,18}(?:\.\d+)?)([KMBT]?)$")
_UNITS = {None: 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50}
_METRICS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

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
    )
)
_SKIPPED = frozenset(
    (
        "order by",
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
        "iceberg snapshot id",
        "skipped iceberg predicates",
        "Per-Host Resources",
        "Per-Instance Resources",
        "Per-Host Shared Resources",
    )
)
_PLAIN = re.compile(
    r"Class \d+$|.*\bpartitions=|.*\bmem-estimate=|.*\b(?:row-size|cardinality|cost|tuple-ids)=|extrapolated-rows="
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
    """All entries in the order of the text, the root first, and what the header says."""

    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reservation_bytes: float | None = None
    estimate_bytes: float | None = None

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
    """Goes through the lines once. latest: per level, the entry that the next one on that level stands below."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._latest: list[Entry | None] = []
        self._depths: dict[int, int] = {}
        self._placement: Placement | None = None
        self._owner: Entry | None = None
        self._branching = False

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        skipping = False
        for number, line in lines:
            line = line.rstrip()
            content = line.lstrip("| ")
            if skipping:
                skipping = bool(content) and not _AFTER_STATEMENT.match(content)
            if skipping or not content:
                continue
            if content.startswith("Analyzed query:"):
                skipping = True
            elif content.startswith("-----"):
                if self._outline.entries:
                    return
            elif not (self._entry(number, line, content) or self._fragment(line)):
                self._detail(number, content)

    def _entry(self, number: int, line: str, content: str) -> bool:
        if content[0].isdigit() or content.startswith("--"):
            node = _NODE.match(line)
            if node is not None:
                indent, branch, identifier, label, bracket = node.groups()
                entry = Entry(number, identifier, label.strip(), bracket or "")
                self._place(entry, len(indent) // _UNIT, branches=branch is not None)
                return True
        empty = _EMPTY_SCAN.match(line)
        if empty is not None:  # of HBase, where no row can match: it has neither a number nor a name
            entry = Entry(number, "", "EMPTYSET", "")
            self._place(entry, len(empty.group(1)) // _UNIT, branches=empty.group(2) is not None)
            return True
        if not content[:2].isupper() and not content.startswith("--"):
            return False
        sink = _SINK.match(line)
        if sink is None:
            return False
        indent, branch, label, bracket, table = sink.groups()
        entry = Entry(number, None, label, bracket or table or "")
        self._place(entry, len(indent) // _UNIT, branches=branch is not None)
        return True

    def _fragment(self, line: str) -> bool:
        fragment = _FRAGMENT.match(line)
        if fragment is None:
            return False
        _, branch, name, rest = fragment.groups()
        self._branching = self._branching or branch is not None
        hosts, instances = (_integer(re.search(rf"\b{word}=(\d{{1,18}})\b", rest)) for word in ("hosts", "instances"))
        self._placement = Placement(name, hosts or 1, instances or hosts or 1)
        self._owner = None
        return True

    def _place(self, entry: Entry, level: int, *, branches: bool) -> None:
        """Hang an entry below the one above it; one that hangs on nothing goes below the last one there is."""
        if self._branching:  # the branch began with the line of its fragment
            level, branches = level if branches else max(0, level - 1), True
        self._branching = False
        above = self._latest[level] if level < len(self._latest) else None
        level += branches
        if above is None and self._outline.entries:
            above = self._outline.entries[-1]
            self._outline.note(f"line {entry.line}: hangs on nothing")
        depth = 0 if above is None else self._depths[id(above)] + 1
        if depth > MAXIMUM_DEPTH:
            raise UnreadablePlan(f"line {entry.line}: nested deeper than {MAXIMUM_DEPTH} levels")
        if self._placement is not None:
            entry.placement, self._placement = self._placement, None
        if above is not None:
            entry.placement = entry.placement or above.placement
            if branches or above.first is not None:
                above.branches.append(entry)
            else:
                above.first = entry
        self._depths[id(entry)] = depth
        level = min(level, MAXIMUM_DEPTH)
        del self._latest[level:]
        self._latest += [None] * (level - len(self._latest))
        self._latest.append(entry)
        self._outline.entries.append(entry)
        self._owner = entry

    def _detail(self, number: int, content: str) -> None:
        keyed = _KEYED.match(content)
        name, nested, text = keyed.groups() if keyed else ("", None, None)
        if name == "Max Per-Host Resource Reservation":
            self._outline.reservation_bytes = _memory(content)
        elif name == "Per-Host Resource Estimates":
            self._outline.estimate_bytes = _memory(content)
        elif self._owner is None:
            return  # the rest of the header, or the resources of a fragment
        elif nested is not None and name.endswith("predicates"):
            return  # of the elements of a nested column, not of the table's rows
        elif name in _READ:
            self._owner.details.setdefault(name, []).append((text or "").strip())
        elif name not in _SKIPPED:
            self._owner.plain.append(content)
            if not _PLAIN.match(content):
                self._outline.note(f"line {number}: not understood: {content[:_QUOTED]!r}")


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
    found = _BYTES.match(text or "")
    return float(found.group(1)) * _UNITS[found.group(2)] if found else None


def metric(text: str | None) -> float | None:
    """Read ``287.51K``; None for ``unavailable`` and what is no number."""
    found = _METRIC.match(text or "")
    return float(round(float(found.group(1)) * _METRICS[found.group(2)])) if found else None


def _memory(content: str) -> float | None:
    found = re.search(r"\bMemory=(\S+)", content)
    return byte_size(found.group(1)) if found else None


def _integer(found: re.Match[str] | None) -> int | None:
    return int(found.group(1)) if found else None
