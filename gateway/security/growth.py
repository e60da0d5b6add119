"""Texts that a statement blows up: how long they may become by what stands in it, and a guard where data decides.

``repeat('x', 1000000000)`` takes a heap of Java down, and with it the statements of others. So a value that a statement
builds by its own constants may be ``MOST_BYTES`` long, and each count that is no constant is checked when the statement
runs on Spark (``guarded``). What a table holds is not counted: a cell is taken for ``CELL_BYTES``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from gateway.security.patterns import explodes
from gateway.sql.errors import ValueOutOfRange
from gateway.sql.position import position_of

MOST_BYTES = 1 << 20
CELL_BYTES = 100
CELL_ELEMENTS = 10
FINEST_DEVIATION = 0.01
"""Of approx_count_distinct: Spark makes a column for every ten of its registers, (1.1 / deviation) ** 2 of them."""

FINEST_ACCURACY = 1_000_000
"""Of approx_percentile: as many samples are kept for each group."""

_COUNTS: Mapping[str, int] = {"repeat": 1, "space": 0, "lpad": 1, "rpad": 1, "format_number": 1}
"""Functions whose result is as long as a number says, with the place of that number."""

_JOINED = frozenset("concat concat_ws array struct named_struct map map_concat array_union overlay".split())
_PATTERNS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("regexp", "rlike", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), (1,)),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), (1,)),
    "str_to_map": (1, 2),
}
"""Functions that match a regular expression, with the places of those."""

_GROWN: Mapping[str, int] = {"hex": 2, "base64": 2, "encode": 4, "translate": 4, "escape": 2}
_STEEP = 1_000_000.0
_GUARD_NAME = "fusion_count"


@dataclass(frozen=True, slots=True)
class _Size:
    """At most of one value. bytes: of all of it; elements: of an array."""

    bytes: float
    elements: float = 1.0


_CELL = _Size(CELL_BYTES, CELL_ELEMENTS)
_Names: TypeAlias = Mapping[str, _Size]


def check_growth(tree: exp.Expr) -> None:
    """Raise ValueOutOfRange for a value that a statement makes too long by itself. tree: in Spark's dialect."""
    _Measure(tree).check()


def explosive_pattern(tree: exp.Expr) -> str | None:
    """Return the first regular expression that may take a matcher that backtracks for ever; None where none does."""
    return next((pattern for pattern in _patterns(tree) if explodes(pattern)), None)


def guarded(tree: exp.Expr, parse: Callable[[str], exp.Expr]) -> exp.Expr:
    """Return a tree in which counts that are no constants are checked as the statement runs. parse: an expression."""
    found = [call for call in _calls(tree) if _unknown_count(call) is not None]
    if not found:
        return tree
    tree = tree.copy()
    for call in [call for call in _calls(tree) if _unknown_count(call) is not None]:
        count = _unknown_count(call)
        name = call.name.lower()
        message = f"{name} may make a text of {MOST_BYTES:,} characters at most"
        guard = parse(
            f"element_at(transform(array(0), {_GUARD_NAME} -> "
            f"IF({_GUARD_NAME} > {MOST_BYTES}, raise_error('{message}'), {_GUARD_NAME})), 1)"
        )
        array = next(node for node in guard.find_all(exp.Anonymous) if node.name.lower() == "array")
        assert count is not None
        count.replace(guard)
        array.set("expressions", [count])
    return tree


def _calls(tree: exp.Expr) -> Iterator[exp.Anonymous]:
    return (node for node in tree.find_all(exp.Anonymous) if node.name.lower() in _COUNTS)


def _unknown_count(call: exp.Anonymous) -> exp.Expr | None:
    place = _COUNTS[call.name.lower()]
    count: exp.Expr | None = call.expressions[place] if place < len(call.expressions) else None
    if count is None or _number(count) is not None or count.find(exp.Query) is not None:
        return None  # Spark takes no subquery where the check would put it; it has its memory alone the second time
    return count


def _patterns(tree: exp.Expr) -> Iterator[str]:
    for node in tree.find_all(exp.Anonymous, exp.RegexpLike):
        is_operator = isinstance(node, exp.RegexpLike)
        arguments = [node.this, node.expression] if is_operator else node.expressions
        for place in (1,) if is_operator else _PATTERNS.get(node.name.lower(), ()):
            text = _text(arguments[place]) if place < len(arguments) else None
            if text is not None:
                yield text


def _text(node: exp.Expr) -> str | None:
    """Return the text that an expression of constants is, where that is plain to see."""
    match node:
        case exp.Paren():
            return _text(node.this)
        case exp.Literal() | exp.RawString() if not isinstance(node, exp.Literal) or node.is_string:
            return str(node.this)
        case exp.DPipe():
            parts = [_text(node.left), _text(node.right)]
        case exp.Anonymous() if node.name.lower() == "concat":
            parts = [_text(part) for part in node.expressions]
        case _:
            return None
    return None if None in parts else "".join(part for part in parts if part is not None)


def _number(node: exp.Expr) -> float | None:
    """Return the number that an expression of constants is, where that is plain to see."""
    match node:
        case exp.Paren() | exp.Cast():
            return _number(node.this)
        case exp.Null():
            return 0.0
        case exp.Literal():
            try:
                return float(node.name.rstrip("yYsSlLfFdDbB") or "nan")
            except ValueError:
                return None
        case exp.Neg():
            one = _number(node.this)
            return None if one is None else -one
        case exp.Add() | exp.Sub() | exp.Mul():
            one, two = _number(node.left), _number(node.right)
            if one is None or two is None:
                return None
            return one + two if isinstance(node, exp.Add) else one - two if isinstance(node, exp.Sub) else one * two
        case _:
            return None


class _Measure:
    """Measures every value of a statement, what a subquery gives before what reads it."""

    def __init__(self, tree: exp.Expr) -> None:
        self._tree = tree
        self._ctes: dict[str, dict[str, _Size]] = {}
        self._known: dict[int, _Size] = {}

    def check(self) -> None:
        """Raise ValueOutOfRange for the first value that becomes too long."""
        self._query(self._tree)

    def _query(self, query: exp.Expr) -> dict[str, _Size]:
        """Return the sizes of a query's columns, by name."""
        ctes = dict(self._ctes)
        for cte in query.args["with_"].expressions if query.args.get("with_") else ():
            self._ctes[cte.alias.lower()] = _renamed(self._query(cte.this), cte)
        try:
            match query:
                case exp.Subquery():
                    return self._query(query.this)
                case exp.SetOperation():
                    left, right = self._query(query.left), self._query(query.right)
                    both = zip(left.items(), right.values(), strict=False)
                    return {name: max(one, two, key=lambda size: size.bytes) for (name, one), two in both}
                case exp.Select():
                    return self._select(query)
                case _:
                    for child in query.iter_expressions():
                        self._size(child, {})
                    return {}
        finally:
            self._ctes = ctes

    def _select(self, query: exp.Select) -> dict[str, _Size]:
        names: dict[str, _Size] = {}
        for place in [query.args.get("from_"), *query.args.get("joins", ()), *query.args.get("laterals", ())]:
            if place is not None:
                names |= self._source(place.this if not isinstance(place, exp.Lateral) else place, names)
        columns: dict[str, _Size] = {}
        seen = ChainMap(names, columns)  # a name may be an alias of this very list
        for projection in query.expressions:
            size = self._size(projection, seen)
            if projection.is_star:
                columns |= names
            columns[projection.alias_or_name.lower()] = size
        for part, value in query.args.items():
            if part not in ("expressions", "from_", "with_"):
                for node in value if isinstance(value, list) else [value]:
                    if isinstance(node, exp.Expr):
                        self._size(node, seen)
        return columns

    def _source(self, source: exp.Expr, names: _Names) -> dict[str, _Size]:
        if isinstance(source, exp.Subquery):
            return _renamed(self._query(source.this), source)
        if isinstance(source, exp.Table):
            return dict(self._ctes.get(source.name.lower(), {}))
        size = self._size(source, names)
        alias = source.args.get("alias")
        given = [column.name.lower() for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
        return dict.fromkeys(given, size)

    def _size(self, node: exp.Expr, names: _Names) -> _Size:
        size = self._size_of(node, names)
        if size.bytes > MOST_BYTES:
            raise ValueOutOfRange(
                f"This makes a value of up to {size.bytes:,.0f} bytes; {MOST_BYTES:,} are the most that a statement "
                "may build by its own constants. Build a shorter one, or read it from a table.",
                position_of(node),
            )
        return size

    def _size_of(self, node: exp.Expr, names: _Names) -> _Size:
        match node:
            case exp.Literal() | exp.RawString():
                return _Size(len(str(node.this).encode()))
            case exp.Column():
                return names.get(node.name.lower(), _CELL)
            case exp.Identifier():  # a variable of a lambda
                return names.get(node.name.lower(), _CELL)
            case exp.Query() | exp.Subquery():
                return max(self._query(node).values(), key=lambda size: size.bytes, default=_CELL)
            case exp.Anonymous() if node.name.lower() in _HANDLERS:
                return _HANDLERS[node.name.lower()](self, node, names)
            case exp.Anonymous() | exp.AnonymousAggFunc():
                return self._call(node, names)
            case exp.DPipe() | exp.Overlay() | exp.Concat():
                return _joined(self._children(node, names))
            case _:
                return _largest(self._children(node, names))

    def _children(self, node: exp.Expr, names: _Names) -> list[_Size]:
        return [self._size(child, names) for child in node.iter_expressions()]

    def _call(self, node: exp.Expr, names: _Names) -> _Size:
        name, sizes = node.name.lower(), [self._size(argument, names) for argument in node.expressions]
        if name in _JOINED:
            return replace(_joined(sizes), elements=max(len(sizes), *(size.elements for size in sizes), 1))
        largest = _largest(sizes)
        return replace(largest, bytes=largest.bytes * _GROWN.get(name, 1))

    def _counted(self, node: exp.Expr, names: _Names) -> _Size:
        """Measure what is as long as a number says."""
        name, sizes = node.name.lower(), [self._size(argument, names) for argument in node.expressions]
        place = _COUNTS[name]
        count = _number(node.expressions[place]) if place < len(sizes) else None
        if count is None:
            count = CELL_BYTES
        unit = sizes[0].bytes if name == "repeat" else 1.0
        return _Size(max(unit * count, 0.0 if name == "repeat" else CELL_BYTES))

    def _replaced(self, node: exp.Expr, names: _Names) -> _Size:
        """Measure what has a text in place of each match; at most one for each byte, and one at the end."""
        sizes = [self._size(argument, names) for argument in node.expressions]
        if len(sizes) < 3:
            return _largest(sizes)
        return _Size((sizes[0].bytes + 1) * max(1.0, sizes[2].bytes))

    def _split(self, node: exp.Expr, names: _Names) -> _Size:
        sizes = [self._size(argument, names) for argument in node.expressions]
        text = _largest(sizes[:1])
        return _Size(text.bytes, max(CELL_ELEMENTS, text.bytes))

    def _array_join(self, node: exp.Expr, names: _Names) -> _Size:
        sizes = [self._size(argument, names) for argument in node.expressions]
        between = max((size.bytes for size in sizes[1:]), default=0.0)
        return _Size(sizes[0].bytes + sizes[0].elements * between) if sizes else _CELL

    def _transformed(self, node: exp.Expr, names: _Names) -> _Size:
        sizes = [self._size(argument, names) for argument in node.expressions if not isinstance(argument, exp.Lambda)]
        whole = _largest(sizes)
        element = replace(whole, bytes=max(1.0, whole.bytes / max(1.0, whole.elements)))
        made = _Size(0.0)
        for function in node.expressions:
            if isinstance(function, exp.Lambda):
                made = self._size(function.this, {**names, **_variables(function, [element, element])})
        return _Size(max(whole.bytes, made.bytes * whole.elements), whole.elements)

    def _reduced(self, node: exp.Expr, names: _Names) -> _Size:
        """Measure what is folded: a step may add to what was gathered, not multiply it."""
        if len(node.expressions) < 3 or not isinstance(node.expressions[2], exp.Lambda):
            return _largest([self._size(argument, names) for argument in node.expressions])
        array, start = (self._size(argument, names) for argument in node.expressions[:2])
        step = node.expressions[2]
        element = replace(array, bytes=max(1.0, array.bytes / max(1.0, array.elements)))
        none, much = (
            self._size_of(step.this, {**names, **_variables(step, [_Size(gathered), element])})
            for gathered in (0.0, _STEEP)
        )
        if much.bytes - none.bytes > 1.5 * _STEEP:
            raise ValueOutOfRange(
                "Each step of this makes what was gathered several times as long. Let it add to that instead.",
                position_of(node),
            )
        whole = _Size(start.bytes + array.elements * none.bytes, array.elements)
        for finish in node.expressions[3:]:
            if isinstance(finish, exp.Lambda):
                whole = self._size(finish.this, {**names, **_variables(finish, [whole])})
        return whole

    def _distinct(self, node: exp.Expr, names: _Names) -> _Size:
        _require(node, 1, lambda value: value >= FINEST_DEVIATION, f"a deviation of {FINEST_DEVIATION} or more")
        return self._call(node, names)

    def _percentile(self, node: exp.Expr, names: _Names) -> _Size:
        _require(node, 2, lambda value: value <= FINEST_ACCURACY, f"an accuracy of {FINEST_ACCURACY:,} or less")
        return self._call(node, names)


_HANDLERS: Mapping[str, Callable[[_Measure, exp.Expr, _Names], _Size]] = {
    **dict.fromkeys(_COUNTS, _Measure._counted),
    **dict.fromkeys(("replace", "regexp_replace"), _Measure._replaced),
    **dict.fromkeys(("split", "regexp_extract_all"), _Measure._split),
    "array_join": _Measure._array_join,
    **dict.fromkeys(("transform", "zip_with", "filter"), _Measure._transformed),
    **dict.fromkeys(("aggregate", "reduce"), _Measure._reduced),
    "approx_count_distinct": _Measure._distinct,
    **dict.fromkeys(("approx_percentile", "percentile_approx"), _Measure._percentile),
}


def _require(node: exp.Expr, place: int, holds: Callable[[float], bool], wanted: str) -> None:
    """Refuse an argument of a sketch that would make it larger than memory."""
    if place < len(node.expressions):
        value = _number(node.expressions[place])
        if value is None or not holds(value):
            raise ValueOutOfRange(f"{node.name.lower()} takes {wanted}, as a number.", position_of(node))


def _variables(function: exp.Lambda, sizes: list[_Size]) -> dict[str, _Size]:
    return {variable.name.lower(): size for variable, size in zip(function.expressions, sizes, strict=False)}


def _joined(sizes: list[_Size]) -> _Size:
    return _Size(sum(size.bytes for size in sizes), max((size.elements for size in sizes), default=1.0))


def _largest(sizes: list[_Size]) -> _Size:
    """Return what bounds the value of a function that is not known to make texts longer."""
    return _Size(max((size.bytes for size in sizes), default=1.0), max((size.elements for size in sizes), default=1.0))


def _renamed(columns: dict[str, _Size], source: exp.Expr) -> dict[str, _Size]:
    alias = source.args.get("alias")
    given = [column.name.lower() for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    return {**columns, **dict(zip(given, columns.values(), strict=False))}
