"""Upper bounds of the sizes of a statement's values: of each expression and each column of each subquery.

A column is found by its name and source, or by its position where an alias renames it. If that is not certain, the
largest candidate counts.

It is long because each kind of expression has its own rule, and the rules need each other; ADR 64 has what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

from sqlglot import exp

from sql.errors import ValueOutOfRange
from sql.limits.replacing import growth_of
from sql.nodes import position_of
from sql.parsers.spark import MOST_LEVELS
from sql.tables import TableSource

MOST_BYTES = 1 << 20
CELL_BYTES = 100
CELL_ELEMENTS = 10
MOST_GATHERED_BYTES = 1 << 14
"""Bytes that an aggregate function keeps of each row: there may be a million rows."""

FINEST_DEVIATION = 0.01
"""Deviation of approx_count_distinct: Spark has a column for every ten of its (1.1 / deviation) ** 2 registers."""

FINEST_ACCURACY = 1_000_000
"""Accuracy of approx_percentile: so many samples are kept for each group."""

MOST_PLACES = 400
"""Decimal places of ROUND: a double has no digits beyond them, but Java would compute with more."""

COUNTS: Mapping[str, int] = {
    **{"repeat": 1, "space": 0, "lpad": 1, "rpad": 1, "format_number": 1, "randstr": 0},
    **{"array_repeat": 1, "array_insert": 1},
}
"""Functions with the length of the result as an argument, with its position."""

ELEMENT_BYTES = 8
"""Bytes of a number or a time in an array."""

MOST_ELEMENTS = MOST_BYTES // ELEMENT_BYTES
"""Elements of a sequence."""

FORMATS = frozenset({"format_string", "printf"})
"""Functions whose first argument is a format with widths."""

_JOINED = frozenset(
    """
    concat concat_ws array struct named_struct map map_concat array_union overlay array_append array_prepend arrays_zip
    map_from_arrays map_from_entries map_entries from_json from_csv from_xml variant_insert variant_set
    variant_array_append try_variant_insert try_variant_set try_variant_array_append mask
    """.split()
)
_GATHERED = frozenset("collect_list collect_set collect_union array_agg listagg string_agg".split())
_ROUNDED = frozenset("round bround ceil ceiling floor truncate".split())
_GROWN: Mapping[str, int] = {
    **{"hex": 2, "base64": 2, "encode": 4, "to_base32": 2, "quote": 2, "url_encode": 3},
    **dict.fromkeys(("to_json", "to_csv", "to_xml", "to_variant_object", "schema_of_variant"), 6),  # escapes, names
}
_WIDTHS = re.compile(r"[0-9]+")
_NUMBER_BYTES = 40
_SHORT: Mapping[str, int] = {
    **dict.fromkeys("length len char_length character_length octet_length bit_length size cardinality".split(), 20),
    **dict.fromkeys("array_size json_array_length ascii instr locate position charindex find_in_set".split(), 20),
    **dict.fromkeys("levenshtein hash xxhash64 crc32 count count_if approx_count_distinct ndv".split(), 20),
    **dict.fromkeys("regexp_count regexp_instr contains startswith endswith regexp_like isnull isnotnull".split(), 20),
    **{"md5": 32, "sha": 40, "sha1": 40, "sha2": 128},
}
"""Functions whose result has at most so many bytes, for any arguments."""

_CUT: Mapping[str, int] = {"left": 1, "right": 1, "substr": 2, "substring": 2}
_GENERATED = ("col", "pos", "key", "value")
_STEEP = 1_000_000.0
_LEVELS = 100  # Spark ends a recursion there, unless it is told another number
_OTHER = ""


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bound of one value. elements: of an array."""

    bytes: float
    elements: float = 1.0


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a source.

    sized: names and sizes in order.
    sure: these are all columns, each in its position.
    alias: name of the source in FROM; empty: columns are named without one.
    """

    sized: Sequence[tuple[str, Size]] = ()
    sure: bool = False
    alias: str = ""

    @property
    def largest(self) -> Size:
        return _largest([_CELL, *(size for _, size in self.sized)])

    def renamed(self, source: exp.Expr) -> _Columns:
        alias = source.args.get("alias")
        names = [column.name.lower() for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if not names:
            return self
        if self.sure and len(names) == len(self.sized):
            return _Columns([(name, size) for name, (_, size) in zip(names, self.sized, strict=True)], True)
        return _Columns([(name, self.largest) for name in names], True)


_CELL = Size(CELL_BYTES, CELL_ELEMENTS)
_Names: TypeAlias = Mapping[str, Size]


class Measure:
    """Measures every value of a statement, subqueries before the queries that read them.

    tables: read by the statement.
    """

    def __init__(self, tree: exp.Expr, tables: Iterable[TableSource] = ()) -> None:
        self._tree = tree
        self._tables = {table.name.lower(): table for table in tables}
        self._ctes: dict[str, _Columns] = {}

    def check(self) -> None:
        """Raise ValueOutOfRange for the first value that becomes too long."""
        self._query(self._tree, {})

    # ------------------------------------------------------------------ queries

    def _query(self, query: exp.Expr, outer: _Names) -> _Columns:
        """Return the sizes of a query's columns. outer: names of the query around a subquery."""
        ctes = dict(self._ctes)
        clause = query.args.get("with_")
        for cte in clause.expressions if clause else ():
            recursive = bool(clause and clause.args.get("recursive")) and isinstance(cte.this, exp.SetOperation)
            columns = self._recursive(cte, outer) if recursive else self._query(cte.this, outer)
            self._ctes[cte.alias.lower()] = columns.renamed(cte)
        try:
            match query:
                case exp.Subquery():
                    columns = self._query(query.this, outer)
                case exp.SetOperation():
                    columns = _united(self._query(query.left, outer), self._query(query.right, outer))
                case exp.Select():
                    return self._select(query, outer)
                case exp.Values():
                    return self._values(query, outer)
                case _:  # tables in brackets
                    return self._source(query, outer)
            names = _scope(outer, [columns], shadow=False)
            for part in ("order", "limit", "offset", "sort", "cluster", "distribute"):
                if isinstance(query.args.get(part), exp.Expr):
                    self._size(query.args[part], names)
            return columns
        finally:
            self._ctes = ctes

    def _recursive(self, cte: exp.CTE, outer: _Names) -> _Columns:
        """Measure a recursive expression: a step may add to the values that it reads, not multiply them."""
        name, query = cte.alias.lower(), cte.this
        first = self._query(query.left, outer)

        def step(read_bytes: float) -> _Columns:
            self._ctes[name] = _Columns([(name, Size(read_bytes)) for name, _ in first.sized], first.sure).renamed(cte)
            return self._query(query.right, outer)

        none, much = step(0.0), step(_STEEP)
        _require_additive(none.largest.bytes, much.largest.bytes, cte)
        levels = cte.args["alias"].meta.get(MOST_LEVELS, _LEVELS)
        added = _Columns([(name, replace(size, bytes=size.bytes * levels)) for name, size in none.sized], none.sure)
        return _united(first, added)

    def _select(self, query: exp.Select, outer: _Names) -> _Columns:
        sources: list[_Columns] = []
        places = [query.args.get("from_"), *(query.args.get("joins") or ()), *(query.args.get("laterals") or ())]
        for place in places:
            if place is not None:
                source = place if isinstance(place, exp.Lateral) else place.this
                columns_of_source = self._source(source, _scope(outer, sources))
                sources.append(replace(columns_of_source, alias=source.alias_or_name.lower()))
        inner = _scope(outer, sources)
        columns: list[tuple[str, Size]] = []
        sure = True
        seen = dict(inner)
        for projection in query.expressions:
            if projection.is_star:
                columns += [column for source in sources for column in source.sized]
                sure = sure and isinstance(projection, exp.Star) and not projection.args.get("except_")
                sure = sure and len(sources) == 1 and sources[0].sure
                self._children(projection, seen)
                continue
            size = self._size(projection, seen)
            name = projection.alias_or_name.lower()
            columns.append((name, size))
            sure = sure and bool(name)  # an output without a name may be several columns
            if name not in inner:
                seen[name or _OTHER] = size  # a name may be an alias of this very list
        after = _scope(inner, [_Columns(columns, True)], shadow=False)
        for part, value in query.args.items():
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, exp.Join):
                    self._children(node, after, but=node.this)
                elif isinstance(node, exp.Expr) and part not in ("expressions", "from_", "with_", "laterals"):
                    self._size(node, after)
        return _Columns(columns, sure)

    def _source(self, source: exp.Expr, names: _Names) -> _Columns:
        columns = self._source_alone(source, names).renamed(source)
        for pivot in source.args.get("pivots") or ():
            columns = self._pivoted(pivot, columns, names).renamed(pivot)
        for join in source.args.get("joins") or ():  # in brackets
            joined = self._source(join.this, names)
            columns = _Columns([*columns.sized, *joined.sized])
            self._children(join, _scope(names, [columns]), but=join.this)
        return columns

    def _pivoted(self, pivot: exp.Expr, columns: _Columns, names: _Names) -> _Columns:
        """Measure PIVOT and UNPIVOT: any column may be as large as the largest."""
        largest = _largest([columns.largest, *self._children(pivot, _scope(names, [columns]))])
        return _Columns([*columns.sized, (_OTHER, largest)])

    def _source_alone(self, source: exp.Expr, names: _Names) -> _Columns:
        match source:
            case exp.Table() if not isinstance(source.this, exp.Identifier):
                size = self._size(source.this, names)
                return _Columns([*((name, size) for name in _GENERATED), (_OTHER, size)])
            case exp.Subquery() | exp.Values():
                return self._query(source, names)
            case exp.Table():
                if columns := self._ctes.get(source.name.lower()):
                    return columns
                table = self._tables.get(source.name.lower())
                return (
                    _Columns([(column.name.lower(), _CELL) for column in table.columns], True) if table else _Columns()
                )
            case exp.Lateral() if isinstance(source.this, exp.Subquery):
                return self._query(source.this, names)
            case exp.Lateral():
                size = self._size(source.this, names)
            case _:
                size = _largest(self._children(source, names))
        return _Columns([*((name, size) for name in _GENERATED), (_OTHER, size)])

    def _values(self, values: exp.Values, names: _Names) -> _Columns:
        rows = [
            [self._size(cell, names) for cell in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in values.expressions
        ]
        columns = [_largest(column) for column in zip_longest(*rows, fillvalue=_CELL)]
        return _Columns([(f"col{place}", size) for place, size in enumerate(columns, 1)], True)

    # ------------------------------------------------------------------ expressions

    def _size(self, node: exp.Expr, names: _Names) -> Size:
        size = self._size_of(node, names)
        if size.bytes > MOST_BYTES:
            raise ValueOutOfRange(
                f"This builds a value of up to {size.bytes:,.0f} bytes from the statement's constants, and "
                f"{MOST_BYTES:,} are allowed: build a shorter one, or read it from a table.",
                position_of(node),
            )
        return size

    def _size_of(self, node: exp.Expr, names: _Names) -> Size:
        match node:
            case exp.Literal() | exp.RawString():
                return Size(len(str(node.this).encode("utf-8", "surrogatepass")))
            case exp.Column() | exp.Dot():
                return self._column(node, names)
            case exp.Identifier():  # a variable of a lambda
                return names.get(node.name.lower(), _CELL)
            case exp.Alias():
                return self._size(node.this, names)
            case exp.Query() | exp.Subquery() | exp.Values():
                return self._query(node, names).largest
            case exp.Anonymous() | exp.AnonymousAggFunc() if node.name.lower() in _HANDLERS:
                return _HANDLERS[node.name.lower()](self, node, names)
            case exp.Anonymous() | exp.AnonymousAggFunc():
                return self._call(node, names)
            case exp.DPipe() | exp.Overlay() | exp.Concat():
                return _joined(self._children(node, names))
            case exp.Substring():
                return self._cut(_largest(self._children(node, names)), node.args.get("length"))
            case _:
                largest = _largest(self._children(node, names))
                return replace(largest, bytes=min(largest.bytes, _NUMBER_BYTES)) if _is_number(node) else largest

    def _column(self, node: exp.Expr, names: _Names) -> Size:
        """Measure a column, or a field of one: ``a.b`` may be either."""
        if isinstance(node, exp.Dot):
            return _largest(self._children(node, names))
        parts = [part.name.lower() for part in (node.parts if isinstance(node, exp.Column) else ())]
        if (qualified := ".".join(parts[-2:])) in names:
            return names[qualified]
        sizes = [names[part] for part in parts if part in names]
        return _largest(sizes) if sizes else names.get(_OTHER, _CELL)

    def _children(self, node: exp.Expr, names: _Names, but: object = None) -> list[Size]:
        return [self._size(child, names) for child in node.iter_expressions() if child is not but]

    def _call(self, node: exp.Expr, names: _Names) -> Size:
        name, sizes = node.name.lower(), [self._size(argument, names) for argument in node.expressions]
        if name in _JOINED:
            return replace(_joined(sizes), elements=max(len(sizes), *(size.elements for size in sizes), 1))
        largest = _largest(sizes)
        if name in _SHORT:
            return Size(_SHORT[name])
        if name in _CUT:
            place = _CUT[name]
            return self._cut(largest, node.expressions[place] if place < len(sizes) else None)
        return replace(largest, bytes=largest.bytes * _GROWN.get(name, 1))

    @staticmethod
    def _cut(size: Size, length: exp.Expr | None) -> Size:
        most = number_of(length) if length is not None else None
        return size if most is None else replace(size, bytes=min(size.bytes, max(1.0, 4 * most)))

    def _counted(self, node: exp.Expr, names: _Names) -> Size:
        """Measure a function with the length of its result as an argument."""
        name, sizes = node.name.lower(), [self._size(argument, names) for argument in node.expressions]
        place = COUNTS[name]
        count = number_of(node.expressions[place]) if place < len(sizes) else None
        if count is None:
            count = CELL_BYTES
        if name == "array_repeat":
            return Size(max(ELEMENT_BYTES, sizes[0].bytes) * count, max(1.0, count))
        if name == "array_insert":
            whole, elements = _joined([sizes[0], *sizes[2:]]), max(sizes[0].elements, abs(count))
            return Size(whole.bytes + ELEMENT_BYTES * abs(count), elements)
        unit = sizes[0].bytes if name == "repeat" else 1.0
        return Size(max(unit * count, 0.0 if name == "repeat" else CELL_BYTES))

    def _sequence(self, node: exp.Expr, names: _Names) -> Size:
        self._call(node, names)
        count = length_of_sequence(node)
        elements = CELL_BYTES if count is None else count
        return Size(ELEMENT_BYTES * elements, max(1.0, elements))

    def _formatted(self, node: exp.Expr, names: _Names) -> Size:
        sizes = [self._size(argument, names) for argument in node.expressions]
        pattern = text_of(node.expressions[0]) if node.expressions else None
        widths = [float(digits) for digits in _WIDTHS.findall(pattern or "")]
        repeated = (pattern or "").count("%") * max((size.bytes for size in sizes[1:]), default=0.0)
        return Size(_joined(sizes[:1]).bytes + sum(widths) + repeated)

    def _replaced(self, node: exp.Expr, names: _Names) -> Size:
        assert isinstance(node, exp.Anonymous)
        if not node.expressions:
            return _CELL
        growth = growth_of(node, text_of, lambda part: self._size(part, names).bytes, MOST_BYTES)
        whole = self._size(growth.inner, names)
        return Size(whole.bytes * growth.factor + growth.more)

    def _split(self, node: exp.Expr, names: _Names) -> Size:
        sizes = [self._size(argument, names) for argument in node.expressions]
        text = _largest(sizes[:1])
        return Size(text.bytes, max(CELL_ELEMENTS, text.bytes))

    def _array_join(self, node: exp.Expr, names: _Names) -> Size:
        sizes = [self._size(argument, names) for argument in node.expressions]
        between = max((size.bytes for size in sizes[1:]), default=0.0)
        return Size(sizes[0].bytes + sizes[0].elements * between) if sizes else _CELL

    def _transformed(self, node: exp.Expr, names: _Names) -> Size:
        sizes = [self._size(argument, names) for argument in node.expressions if not isinstance(argument, exp.Lambda)]
        whole = _largest(sizes)
        element = replace(whole, bytes=max(1.0, whole.bytes / max(1.0, whole.elements)))
        result = Size(0.0)
        for function in node.expressions:
            if isinstance(function, exp.Lambda):
                result = self._size(function.this, {**names, **_variables(function, [element, element, element])})
        if node.name.lower() in ("filter", "map_filter"):
            return whole
        return Size(max(whole.bytes, result.bytes * whole.elements), whole.elements)

    def _reduced(self, node: exp.Expr, names: _Names) -> Size:
        """Measure a fold: a step may add to the accumulated value, not multiply it."""
        if len(node.expressions) < 3 or not isinstance(node.expressions[2], exp.Lambda):
            return _largest([self._size(argument, names) for argument in node.expressions])
        array, start = (self._size(argument, names) for argument in node.expressions[:2])
        step = node.expressions[2]
        element = replace(array, bytes=max(1.0, array.bytes / max(1.0, array.elements)))
        none, much = (
            self._size_of(step.this, {**names, **_variables(step, [Size(gathered), element])})
            for gathered in (0.0, _STEEP)
        )
        _require_additive(none.bytes, much.bytes, node)
        whole = Size(start.bytes + array.elements * none.bytes, array.elements)
        for finish in node.expressions[3:]:
            if isinstance(finish, exp.Lambda):
                whole = self._size(finish.this, {**names, **_variables(finish, [whole])})
        return whole

    def _gathered(self, node: exp.Expr, names: _Names) -> Size:
        """Measure an aggregate that keeps a value of every row: the value has to be small, as there may be many."""
        whole = _largest([self._size(argument, names) for argument in node.expressions])
        if whole.bytes > MOST_GATHERED_BYTES:
            raise ValueOutOfRange(
                f"{node.name.lower()} would keep up to {whole.bytes:,.0f} bytes of every row, built from the "
                f"statement's constants, and {MOST_GATHERED_BYTES:,} are allowed: build shorter ones.",
                position_of(node),
            )
        return whole

    def _distinct(self, node: exp.Expr, names: _Names) -> Size:
        _require(node, 1, lambda value: value >= FINEST_DEVIATION, f"a deviation of {FINEST_DEVIATION} or more")
        return self._call(node, names)

    def _percentile(self, node: exp.Expr, names: _Names) -> Size:
        _require(node, 2, lambda value: value <= FINEST_ACCURACY, f"an accuracy of {FINEST_ACCURACY:,} or less")
        return self._call(node, names)

    def _rounded(self, node: exp.Expr, names: _Names) -> Size:
        if len(node.expressions) > 1 and node.expressions[1].find(exp.Column) is None:
            _require(node, 1, lambda value: abs(value) <= MOST_PLACES, f"{MOST_PLACES} decimal places or less")
        self._call(node, names)
        return Size(_NUMBER_BYTES)


_HANDLERS: Mapping[str, Callable[[Measure, exp.Expr, _Names], Size]] = {
    **dict.fromkeys(COUNTS, Measure._counted),
    **dict.fromkeys(("replace", "regexp_replace", "translate"), Measure._replaced),
    **dict.fromkeys(("split", "regexp_extract_all"), Measure._split),
    "array_join": Measure._array_join,
    "sequence": Measure._sequence,
    **dict.fromkeys(FORMATS, Measure._formatted),
    **dict.fromkeys(
        (
            *("transform", "zip_with", "filter"),
            *("map_filter", "map_zip_with", "transform_keys", "transform_values"),
        ),
        Measure._transformed,
    ),
    **dict.fromkeys(("aggregate", "reduce"), Measure._reduced),
    **dict.fromkeys(_GATHERED, Measure._gathered),
    **dict.fromkeys(_ROUNDED, Measure._rounded),
    "approx_count_distinct": Measure._distinct,
    **dict.fromkeys(("approx_percentile", "percentile_approx"), Measure._percentile),
}


def length_of_sequence(call: exp.Expr) -> float | None:
    """Return the number of elements of a sequence of literal numbers; None: it is not known."""
    numbers = [number_of(argument) for argument in call.expressions]
    if len(numbers) not in (2, 3) or None in numbers:
        return None
    start, stop, step = (*(number or 0.0 for number in numbers), 1.0)[:3]
    return abs(stop - start) / abs(step) + 1 if step else 1.0


def text_of(node: exp.Expr) -> str | None:
    """Return the text of a constant expression; None: it is not a simple constant."""
    match node:
        case exp.Paren() | exp.Collate():
            return text_of(node.this)
        case exp.Literal() | exp.RawString() if not isinstance(node, exp.Literal) or node.is_string:
            return str(node.this)
        case exp.DPipe():
            parts = [text_of(node.left), text_of(node.right)]
        case exp.Anonymous() if node.name.lower() == "concat":
            parts = [text_of(part) for part in node.expressions]
        case _:
            return None
    return None if None in parts else "".join(part for part in parts if part is not None)


def number_of(node: exp.Expr) -> float | None:
    """Return the number of a constant expression; None: it is not a simple constant."""
    match node:
        case exp.Paren() | exp.Cast():
            return number_of(node.this)
        case exp.Null():
            return 0.0
        case exp.Literal():
            try:
                return float(node.name.rstrip("yYsSlLfFdDbB") or "nan")
            except ValueError:
                return None
        case exp.Neg():
            one = number_of(node.this)
            return None if one is None else -one
        case exp.Add() | exp.Sub() | exp.Mul():
            one, two = number_of(node.left), number_of(node.right)
            if one is None or two is None:
                return None
            return one + two if isinstance(node, exp.Add) else one - two if isinstance(node, exp.Sub) else one * two
        case _:
            return None


def _is_number(node: exp.Expr) -> bool:
    """Return True if an expression is a number, a time or a boolean."""
    if isinstance(node, exp.Cast):
        return node.to.this in (*exp.DataType.NUMERIC_TYPES, *exp.DataType.TEMPORAL_TYPES, exp.DType.BOOLEAN)
    return isinstance(
        node, exp.Predicate | exp.Connector | exp.Not | exp.Add | exp.Sub | exp.Mul | exp.Div | exp.IntDiv | exp.Mod
    )


def _require(node: exp.Expr, place: int, holds: Callable[[float], bool], wanted: str) -> None:
    """Raise ValueOutOfRange for an argument with which a function would need too much memory or time."""
    if place < len(node.expressions):
        value = number_of(node.expressions[place])
        if value is None or not holds(value):
            raise ValueOutOfRange(f"{node.name.lower()} takes {wanted}, as a number.", position_of(node))


def _require_additive(none_bytes: float, much_bytes: float, node: exp.Expr) -> None:
    """Raise ValueOutOfRange for a step that multiplies.

    none_bytes, much_bytes: after a step over 0 and over _STEEP bytes.
    """
    if much_bytes - none_bytes > 1.5 * _STEEP:
        raise ValueOutOfRange(
            "Each step of this multiplies the length of the accumulated value: let it add to the value instead.",
            position_of(node),
        )


def _scope(outer: _Names, sources: Sequence[_Columns], *, shadow: bool = True) -> dict[str, Size]:
    """Return the sizes by name inside of a query: the largest for a name of several sources.

    shadow: names of the sources hide outer ones; else the larger size counts.
    """
    inner: dict[str, Size] = {}
    for source in sources:
        for name, size in source.sized if source.sure else (*source.sized, (_OTHER, source.largest)):
            for key in (name, f"{source.alias}.{name}") if source.alias else (name,):
                inner[key] = _largest([size, inner[key]]) if key in inner else size
    for name, size in outer.items():
        if name not in inner:
            inner[name] = size
        elif not shadow or name == _OTHER:
            inner[name] = _largest([size, inner[name]])
    return inner


def _united(first: _Columns, second: _Columns) -> _Columns:
    """Return the columns of a set operation: in their order, by the names of the first query."""
    if first.sure and second.sure and len(first.sized) == len(second.sized):
        pairs = zip(first.sized, second.sized, strict=True)
        return _Columns([(name, _largest([one, two])) for (name, one), (_, two) in pairs], True)
    largest = _largest([first.largest, second.largest])
    return _Columns([(name, largest) for name, _ in first.sized])


def _variables(function: exp.Lambda, sizes: list[Size]) -> dict[str, Size]:
    return {variable.name.lower(): size for variable, size in zip(function.expressions, sizes, strict=False)}


def _joined(sizes: list[Size]) -> Size:
    return Size(sum(size.bytes for size in sizes), max((size.elements for size in sizes), default=1.0))


def _largest(sizes: Sequence[Size]) -> Size:
    """Return the bound of a function that does not make its arguments longer."""
    return Size(max((size.bytes for size in sizes), default=1.0), max((size.elements for size in sizes), default=1.0))
