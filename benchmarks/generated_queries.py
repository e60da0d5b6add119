"""Small queries over all types, made from a seed: the same seed makes the same queries, in the same order.

They are Spark's SQL. Each asks for a few expressions at once, so that two thousand of them ask for ten thousand answers.
What depends on the order of rows, on time or on chance is not asked for.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engines.protocol import Column, TableSource

ITEMS, NOTES = "items", "notes"
ITEM_ROWS, NOTE_ROWS = 48, 64
_WORDS = ["", "a", "Ab", "abc", "zebra", "Zoë", "naïve", "a_b", "a%b", " x ", "12", "-7", "3.50", "1e2", "2020-02-29"]
_WORDS += ["back\\slash", "it's", "foo bar", "FOO", "tail ", "ÀÉÎ", "日本", "x,y,z", "longer than twelve letters"]
_COLUMNS: dict[str, list[str]] = {
    "whole": ["i.id", "i.tiny", "i.small", "i.n", "i.big"],
    "decimal": ["i.m", "i.wide", "i.frac"],
    "double": ["i.x", "i.f"],
    "string": ["i.s", "i.word"],
    "boolean": ["i.flag"],
    "date": ["i.d"],
    "timestamp": ["i.ts"],
}
_TYPES = ("whole", "decimal", "double", "string", "boolean", "date", "timestamp")


def write_tables(folder: Path) -> tuple[TableSource, ...]:
    """Write the two tables that the queries read, with NULL in every column that is no key."""
    chance = random.Random(7)

    def some(values: list[object], rows: int, kind: pa.DataType) -> pa.Array:
        return pa.array([None if chance.random() < 0.12 else chance.choice(values) for _ in range(rows)], kind)

    days: list[object] = [dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(2021, 1, 3), dt.date(1999, 12, 31)]
    days += [dt.date(2020, 1, 31), dt.date(1582, 10, 4), dt.date(2024, 3, 31), dt.date(2023, 11, 5)]
    moments: list[object] = [
        dt.datetime(2020, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC),
        dt.datetime(2021, 1, 3, 0, 0, 0, tzinfo=dt.UTC),
        dt.datetime(2024, 3, 31, 1, 30, 0, tzinfo=dt.UTC),
        dt.datetime(1999, 12, 31, 12, 5, 7, 120_000, tzinfo=dt.UTC),
    ]
    items = {
        "id": ("int", pa.array(range(1, ITEM_ROWS + 1), pa.int32())),
        "tiny": ("tinyint", some([-128, -1, 0, 1, 5, 127], ITEM_ROWS, pa.int8())),
        "small": ("smallint", some([-300, -2, 0, 3, 7, 32_000], ITEM_ROWS, pa.int16())),
        "n": ("int", some([-100, -3, 0, 1, 2, 3, 10, 2_000_000], ITEM_ROWS, pa.int32())),
        "big": ("bigint", some([-(10**12), -5, 0, 1, 42, 9_007_199_254_740_993], ITEM_ROWS, pa.int64())),
        "f": ("float", some([-1.5, 0.0, 0.1, 2.25, 1e10], ITEM_ROWS, pa.float32())),
        "x": (
            "double",
            some(
                [-2.5, -0.0, 0.0, 0.1, 0.285, 1.005, 2.5, 2.675, 1e15, 123.456, float("nan"), float("inf")],
                ITEM_ROWS,
                pa.float64(),
            ),
        ),
        "m": (
            "decimal(7,2)",
            some(
                [Decimal(v) for v in ("-12.35", "0.00", "0.05", "1.25", "99.99", "-0.50")],
                ITEM_ROWS,
                pa.decimal128(7, 2),
            ),
        ),
        "wide": (
            "decimal(20,6)",
            some(
                [Decimal(v) for v in ("-1000000.123456", "0.000001", "3.333333", "12345678901234.5")],
                ITEM_ROWS,
                pa.decimal128(20, 6),
            ),
        ),
        "frac": (
            "decimal(4,4)",
            some([Decimal(v) for v in ("0.0001", "0.5000", "-0.2500", "0.9999")], ITEM_ROWS, pa.decimal128(4, 4)),
        ),
        "s": ("string", some(list(_WORDS), ITEM_ROWS, pa.string())),
        "word": ("string", some(["a", "b", "abc", "abcabc", "Hello World", "x1y22z333"], ITEM_ROWS, pa.string())),
        "flag": ("boolean", some([True, False], ITEM_ROWS, pa.bool_())),
        "d": ("date", some(days, ITEM_ROWS, pa.date32())),
        "ts": ("timestamp", some(moments, ITEM_ROWS, pa.timestamp("us", tz="UTC"))),
    }
    notes = {
        "note": ("bigint", pa.array(range(NOTE_ROWS), pa.int64())),
        "item": ("int", some(list(range(1, ITEM_ROWS + 6)), NOTE_ROWS, pa.int32())),
        "tag": ("string", some(["a", "b", "abc", "red", "Blue", ""], NOTE_ROWS, pa.string())),
        "amount": (
            "decimal(12,3)",
            some([Decimal(v) for v in ("0.125", "-7.500", "1000.001", "33.333")], NOTE_ROWS, pa.decimal128(12, 3)),
        ),
        "score": ("double", some([0.5, -1.25, 10.0, 3.75], NOTE_ROWS, pa.float64())),
        "day": ("date", some(days, NOTE_ROWS, pa.date32())),
    }
    sources = []
    for name, columns in ((ITEMS, items), (NOTES, notes)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({column: values for column, (_, values) in columns.items()}), place / "part-0.parquet")
        declared = tuple(Column(column, kind) for column, (kind, _) in columns.items())
        sources.append(TableSource(name, str(place), "parquet", declared))
    return tuple(sources)


def queries(seed: int, count: int) -> Iterator[str]:
    """Yield so many queries."""
    for number in range(count):
        yield _Maker(random.Random(f"{seed}/{number}")).query()


class _Maker:
    """Makes one query."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._choose = chance.choice

    def query(self) -> str:
        shapes: list[tuple[Callable[[], str], int]] = [
            (self._projection, 10),
            (self._filtered, 4),
            (self._grouped, 6),
            (self._joined, 4),
            (self._windowed, 4),
            (self._combined, 3),
            (self._nested, 3),
            (self._rolled_up, 2),
            (self._sorted, 3),
        ]
        make = self._chance.choices([make for make, _ in shapes], [weight for _, weight in shapes])[0]
        return make()

    # ------------------------------------------------------------------ shapes

    def _projection(self) -> str:
        return f"SELECT i.id, {self._list(self._chance.randint(2, 5))} FROM items i"

    def _filtered(self) -> str:
        return f"SELECT id, {self._list(2)} FROM items AS i WHERE {self.boolean(3)}"

    def _grouped(self) -> str:
        keys = [self._of(self._choose(_TYPES), 1) for _ in range(self._chance.randint(0, 2))]
        names = [f"{key} AS k{place}" for place, key in enumerate(keys)]
        aggregates = [f"{self.aggregate()} AS a{place}" for place in range(self._chance.randint(1, 4))]
        text = f"SELECT {', '.join(names + aggregates)} FROM items i"
        if self._chance.random() < 0.3:
            text += f" WHERE {self.boolean(2)}"
        if keys:
            by = self._choose([", ".join(keys), ", ".join(str(place + 1) for place in range(len(keys)))])
            by = self._choose([by, ", ".join(f"k{place}" for place in range(len(keys)))])
            text += f" GROUP BY {by}"
        if self._chance.random() < 0.25:
            text += (
                f" HAVING {self._choose(['count(*) > 1', 'max(i.n) >= 0', 'sum(i.m) IS NOT NULL', 'min(i.id) < 20'])}"
            )
        return text

    def _joined(self) -> str:
        join = self._choose(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        on = self._choose(
            ["i.id = n.item", "i.id = n.item AND n.score > 0", "i.word = n.tag", "i.d = n.day AND i.m < n.amount"]
        )
        one_side = "SEMI" in join or "ANTI" in join
        extra = (
            ""
            if one_side
            else ", n.note, n.tag, i.m * n.amount AS product, i.id + n.note AS total, n.amount / i.m AS rate"
        )
        extra = extra if self._chance.random() < 0.5 or one_side else ", n.*"
        return f"SELECT i.id, {self._list(1)}{extra} FROM items i {join} notes n ON {on}"

    def _windowed(self) -> str:
        by = self._choose(["", "PARTITION BY i.flag ", "PARTITION BY i.word ", "PARTITION BY i.tiny, i.flag "])
        order = self._choose(["i.id", "i.n, i.id", "i.m DESC, i.id", "i.x, i.id DESC", "i.s DESC NULLS FIRST, i.id"])
        frames = ["", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"]
        frames += [" ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING", " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"]
        frame = self._choose(frames)
        found = []
        for place in range(self._chance.randint(1, 3)):
            function = self._choose(
                [
                    "row_number()",
                    "rank()",
                    "dense_rank()",
                    "ntile(3)",
                    "percent_rank()",
                    "cume_dist()",
                    "lag(i.n)",
                    "lag(i.m, 2)",
                ]
                + ["lead(i.s, 1, 'none')", "lead(i.d)", "first_value(i.m)", "last_value(i.word)", "lag(i.big, 1, 0)"]
                + [
                    "sum(i.n)",
                    "sum(i.m)",
                    "avg(i.m)",
                    "avg(i.n)",
                    "count(*)",
                    "count(i.s)",
                    "min(i.d)",
                    "max(i.m)",
                    "sum(i.x)",
                    "max(i.s)",
                ]
            )
            plain = function.split("(")[0] in (
                "row_number",
                "rank",
                "dense_rank",
                "ntile",
                "percent_rank",
                "cume_dist",
                "lag",
                "lead",
            )
            found.append(f"{function} OVER ({by}ORDER BY {order}{'' if plain else frame}) AS w{place}")
        return f"SELECT i.id, {', '.join(found)} FROM items i"

    def _combined(self) -> str:
        word = self._choose(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"])
        kind = self._choose(_TYPES)
        sides = []
        for table, condition in (("items i", self.boolean(1)), ("items i", self.boolean(1))):
            own = kind if self._chance.random() < 0.7 else self._choose(("whole", "decimal", "double"))
            own = own if kind in ("whole", "decimal", "double") else kind
            sides.append(f"SELECT {self._of(own, 1)} AS a, i.word AS b FROM {table} WHERE {condition}")
        return f"{sides[0]} {word} {sides[1]}"

    def _nested(self) -> str:
        return self._choose(
            [
                lambda: (
                    f"SELECT q.a, q.b, q.a AS again FROM (SELECT {self._of(self._choose(_TYPES), 2)} AS a, "
                    f"{self._of(self._choose(_TYPES), 2)} AS b FROM items i) q WHERE q.a IS NOT NULL"
                ),
                lambda: (
                    f"WITH w AS (SELECT i.word, {self.aggregate()} AS a FROM items i GROUP BY i.word) "
                    "SELECT i.id, w.a FROM items i JOIN w ON w.word = i.word"
                ),
                lambda: (
                    f"SELECT i.id, {self._list(1)} FROM items i WHERE i.id IN (SELECT n.item FROM notes n WHERE n.score > {self._number()})"
                ),
                lambda: (
                    f"SELECT i.id, {self._list(1)} FROM items i WHERE i.n > (SELECT {self._choose(['avg(n.score)', 'min(n.item)', 'max(n.amount)'])} FROM notes n)"
                ),
                lambda: (
                    f"SELECT i.id, (SELECT {self._choose(['count(*)', 'max(n.tag)', 'sum(n.amount)'])} FROM notes n WHERE n.item = i.id) AS inner FROM items i"
                ),
                lambda: (
                    f"SELECT i.id FROM items i WHERE {self._choose(['', 'NOT '])}EXISTS (SELECT 1 FROM notes n WHERE n.item = i.id AND n.amount > i.m)"
                ),
                lambda: (
                    "SELECT i.id FROM items i WHERE i.word NOT IN (SELECT n.tag FROM notes n WHERE n.tag IS NOT NULL)"
                ),
                lambda: (
                    f"SELECT a, {self._choose(['a + 1', 'a / 2', 'a * a'])} AS b FROM (VALUES (1, 'x'), (2, 'y'), (NULL, 'z')) AS v(a, t)"
                ),
            ]
        )()

    def _rolled_up(self) -> str:
        by = self._choose(
            [
                "ROLLUP (i.flag, i.word)",
                "CUBE (i.flag, i.tiny)",
                "GROUPING SETS ((i.flag), (i.word), ())",
                "i.flag, i.word WITH ROLLUP",
            ]
            + ["i.flag, i.word WITH CUBE", "i.flag, i.word GROUPING SETS ((i.flag, i.word), (i.flag))"]
        )
        shown = [key for key in ("i.flag", "i.word", "i.tiny") if key in by]
        ids = ", ".join(f"grouping({key}) AS g{place}" for place, key in enumerate(shown))
        return f"SELECT {', '.join(shown)}, {ids}, {self.aggregate()} AS a, {self.aggregate()} AS b FROM items i GROUP BY {by}"

    def _sorted(self) -> str:
        keys = [
            self._of(self._choose(_TYPES), 1) + self._choose(["", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST"])
            for _ in range(2)
        ]
        return f"SELECT i.id AS Id, {self._list(1)} FROM items i ORDER BY {', '.join(keys)}, i.id LIMIT {self._chance.randint(1, 30)}"

    # ------------------------------------------------------------------ expressions

    def _list(self, count: int) -> str:
        return ", ".join(
            f"{self._of(self._choose(_TYPES), self._chance.randint(1, 3))} AS c{place}" for place in range(count)
        )

    def _of(self, kind: str, depth: int) -> str:
        if depth <= 0 or self._chance.random() < 0.15:
            return self._leaf(kind)
        made: str = getattr(self, kind)(depth)
        return made

    def _leaf(self, kind: str) -> str:
        if self._chance.random() < 0.75:
            return self._choose(_COLUMNS[kind])
        literals = {
            "whole": ["0", "1", "-3", "7", "100", "2L", "3Y"],
            "decimal": ["0.5", "1.25", "-2.50", "100.0", "0.001", "3BD"],
            "double": ["0.5D", "-1e0", "2.0D", "1e3", "double('NaN')"],
            "string": ["'a'", "'abc'", "''", "'Zoë'", "'it\\'s'", "'12'"],
            "boolean": ["true", "false"],
            "date": ["DATE '2020-01-31'", "DATE '1999-12-31'"],
            "timestamp": ["TIMESTAMP '2020-01-31 10:20:30.5'", "TIMESTAMP '1970-01-01 00:00:00'"],
        }
        return self._choose(literals[kind])

    def _number(self) -> str:
        return self._choose(["0", "1", "2.5", "-1", "10"])

    def whole(self, depth: int) -> str:
        w, s, d, t = (lambda kind=kind: self._of(kind, depth - 1) for kind in ("whole", "string", "date", "timestamp"))
        return self._choose(
            [
                lambda: f"({w()} + {w()})",
                lambda: f"({w()} - {w()})",
                lambda: f"(i.tiny * {w()})",
                lambda: f"({w()} % {self._choose(['3', '-4', '7L', 'nullif(i.n, 0)'])})",
                lambda: f"pmod({w()}, {self._choose(['3', '7', '-5'])})",
                lambda: f"({w()} DIV {self._choose(['2', '-3', 'nullif(i.small, 0)'])})",
                lambda: f"(-{w()})",
                lambda: f"abs({w()})",
                lambda: f"length({s()})",
                lambda: f"char_length({s()})",
                lambda: f"octet_length({s()})",
                lambda: f"instr({s()}, {s()})",
                lambda: f"locate({s()}, {s()})",
                lambda: f"locate('b', {s()}, {self._choose(['1', '2', '3'])})",
                lambda: f"position('a' IN {s()})",
                lambda: f"ascii({s()})",
                lambda: f"year({d()})",
                lambda: (
                    f"{self._choose(['month', 'day', 'quarter', 'dayofweek', 'weekday', 'dayofyear', 'weekofyear', 'dayofmonth'])}({d()})"
                ),
                lambda: f"{self._choose(['hour', 'minute', 'second', 'year', 'month', 'day'])}({t()})",
                lambda: (
                    f"extract({self._choose(['YEAR', 'MONTH', 'DAY', 'QUARTER', 'WEEK', 'DOW', 'DOY'])} FROM {d()})"
                ),
                lambda: f"datediff({d()}, {d()})",
                lambda: f"coalesce({w()}, {w()})",
                lambda: f"if({self.boolean(depth - 1)}, {w()}, {w()})",
                lambda: f"CASE WHEN {self.boolean(depth - 1)} THEN {w()} ELSE {w()} END",
                lambda: f"nullif({w()}, {w()})",
                lambda: f"greatest({w()}, {w()}, {w()})",
                lambda: f"least({w()}, {w()})",
                lambda: (
                    f"cast({self._of(self._choose(('decimal', 'double')), 0)} AS {self._choose(['bigint', 'int'])})"
                ),
                lambda: f"try_cast({s()} AS int)",
                lambda: f"cast({self.boolean(depth - 1)} AS int)",
                lambda: f"ceil({self._of('decimal', depth - 1)})",
                lambda: f"floor({self._of('double', 0)})",
                lambda: f"round({w()}, {self._choose(['0', '1'])})",
                lambda: f"(i.n & {w()})",
                lambda: f"(i.n | {w()})",
                lambda: f"(i.n ^ {w()})",
                lambda: "(~i.n)",
                lambda: f"nvl2({w()}, {w()}, {w()})",
                lambda: f"decode(i.word, 'a', {w()}, 'abc', {w()}, {w()})",
                lambda: f"unix_date({d()})",
                lambda: f"unix_timestamp({t()})",
                lambda: f"sign({w()})",
                lambda: "bit_length(i.word)",
                lambda: f"zeroifnull({w()})",
                lambda: f"months_between({d()}, {d()})",
                lambda: f"levenshtein({s()}, {s()})",
                lambda: f"size(split({s()}, ','))",
                lambda: f"crc32({s()})",
                lambda: f"factorial({w()})",
            ]
        )()

    def decimal(self, depth: int) -> str:
        c, w = (lambda kind=kind: self._of(kind, depth - 1) for kind in ("decimal", "whole"))
        leaf = lambda: self._leaf("decimal")  # noqa: E731
        return self._choose(
            [
                lambda: f"({c()} + {leaf()})",
                lambda: f"({c()} - {w()})",
                lambda: f"({leaf()} * {leaf()})",
                lambda: f"({leaf()} * {self._leaf('whole')})",
                lambda: f"({leaf()} / nullif({leaf()}, 0))",
                lambda: f"({leaf()} / {self._choose(['3', '7.5', '0.3', '-2', 'nullif(i.id % 5, 0)'])})",
                lambda: f"({leaf()} % {self._choose(['2', '0.7', '-1.5'])})",
                lambda: f"pmod({leaf()}, {self._choose(['2', '0.7'])})",
                lambda: f"(-{c()})",
                lambda: f"abs({c()})",
                lambda: f"round({c()}, {self._choose(['0', '1', '2', '-1'])})",
                lambda: f"round({c()})",
                lambda: f"coalesce({c()}, {w()})",
                lambda: f"CASE WHEN {self.boolean(depth - 1)} THEN {leaf()} WHEN i.flag THEN {self._leaf('whole')} END",
                lambda: f"greatest({leaf()}, {leaf()})",
                lambda: (
                    f"cast({self._choose(['i.x', 'i.f', 'i.n', 'i.m', 'i.wide', 'i.frac'])} AS decimal({self._choose(['12,3', '20,1', '18,0', '38,10'])}))"
                ),
                lambda: f"try_cast({self._of('string', depth - 1)} AS decimal(10,2))",
                lambda: f"nullif({leaf()}, {leaf()})",
                lambda: f"ceil({leaf()})",
                lambda: f"bround({leaf()}, 1)",
                lambda: f"if({self.boolean(1)}, {leaf()}, {self._leaf('decimal')})",
            ]
        )()

    def double(self, depth: int) -> str:
        x = lambda: self._of(self._choose(("double", "decimal", "whole", "double")), depth - 1)  # noqa: E731
        return self._choose(
            [
                lambda: f"({self._leaf('whole')} / {self._choose(['2', '7', 'nullif(i.n, 0)'])})",
                lambda: f"(i.x + {x()})",
                lambda: f"(i.x * {x()})",
                lambda: f"({x()} - i.f)",
                lambda: f"(i.x / {self._choose(['3', '0.5', '2.5D', 'nullif(i.n, 0)'])})",
                lambda: f"(i.x % {self._choose(['2', '1.5D'])})",
                lambda: f"sqrt({x()})",
                lambda: f"ln({x()})",
                lambda: f"log10({x()})",
                lambda: f"log2({x()})",
                lambda: f"log({self._choose(['2', '10', '3'])}, {x()})",
                lambda: f"exp({self._choose(['i.tiny', 'i.m', '0.5', 'i.frac'])})",
                lambda: f"power({self._choose(['i.m', 'i.tiny', 'i.x'])}, {self._choose(['2', '0.5', '-1'])})",
                lambda: f"round(i.x, {self._choose(['0', '1', '2'])})",
                lambda: "round(i.x)",
                lambda: f"abs({x()})",
                lambda: f"(-i.x + {x()})",
                lambda: f"cast({x()} AS double)",
                lambda: f"cast({x()} AS float)",
                lambda: f"try_cast({self._of('string', depth - 1)} AS double)",
                lambda: f"coalesce(i.x, {x()})",
                lambda: f"greatest(i.x, {x()})",
                lambda: f"least(i.x, i.f, {x()})",
                lambda: f"{self._choose(['sin', 'cos', 'tan', 'atan', 'degrees', 'radians', 'cbrt', 'signum'])}({x()})",
                lambda: f"atan2(i.x, {x()})",
                lambda: f"nullif(i.x, {x()})",
                lambda: f"(i.f + {self._choose(['i.f', '1', 'i.m', 'i.x'])})",
                lambda: f"if({self.boolean(depth - 1)}, i.x, {self._leaf('whole')})",
            ]
        )()

    def string(self, depth: int) -> str:
        s, w = (lambda kind=kind: self._of(kind, depth - 1) for kind in ("string", "whole"))
        any_kind = lambda: self._of(
            self._choose(("whole", "decimal", "date", "timestamp", "boolean", "string")), depth - 1
        )  # noqa: E731
        return self._choose(
            [
                lambda: f"concat({s()}, {any_kind()})",
                lambda: f"({s()} || {any_kind()})",
                lambda: f"concat_ws({self._choose([repr('-'), repr(', ')])}, {s()}, {s()}, {any_kind()})",
                lambda: f"upper({s()})",
                lambda: f"lower({s()})",
                lambda: f"initcap({s()})",
                lambda: f"substring({s()}, {self._choose(['1', '2', '0', '-2', '-5', 'i.tiny'])})",
                lambda: (
                    f"substring({s()}, {self._choose(['1', '2', '0', '-2', '-5', 'i.small'])}, {self._choose(['0', '1', '3', '-1', 'i.n % 4'])})"
                ),
                lambda: f"substr({s()} FROM 2 FOR 2)",
                lambda: f"left({s()}, {self._choose(['2', '0', '-1', 'i.tiny % 4'])})",
                lambda: f"right({s()}, {self._choose(['2', '0', '-1', '30'])})",
                lambda: f"lpad({s()}, {self._choose(['2', '8', '0'])}, {self._choose([repr('*'), repr('xy')])})",
                lambda: f"rpad({s()}, {self._choose(['2', '8'])})",
                lambda: f"trim({s()})",
                lambda: f"{self._choose(['ltrim', 'rtrim'])}({s()})",
                lambda: f"trim({self._choose(['BOTH', 'LEADING', 'TRAILING'])} 'a' FROM {s()})",
                lambda: (
                    f"replace({s()}, {self._choose([repr('a'), repr(''), repr('b')])}, {self._choose([repr('X'), repr('')])})"
                ),
                lambda: f"repeat({s()}, {self._choose(['2', '0', '-1', 'i.tiny % 3'])})",
                lambda: f"reverse({s()})",
                lambda: f"translate({s()}, 'abc', {self._choose([repr('xyz'), repr('x')])})",
                lambda: f"md5({s()})",
                lambda: f"sha2({s()}, 256)",
                lambda: f"sha1({s()})",
                lambda: f"hex({self._choose(['i.n', 'i.s', 'i.big', 'i.word'])})",
                lambda: f"coalesce({s()}, {s()})",
                lambda: f"cast({any_kind()} AS string)",
                lambda: "cast(i.x AS string)",
                lambda: "cast(i.f AS string)",
                lambda: f"if({self.boolean(depth - 1)}, {s()}, {s()})",
                lambda: f"CASE i.word WHEN 'a' THEN {s()} WHEN 'b' THEN {s()} ELSE {s()} END",
                lambda: f"nullif({s()}, {s()})",
                lambda: f"greatest({s()}, {s()})",
                lambda: (
                    f"regexp_replace({s()}, {self._choose([repr('[a-c]+'), repr('b|c'), repr('[0-9]'), repr('.')])}, {self._choose([repr('#'), repr('<$0>'), repr('')])})"
                ),
                lambda: (
                    f"regexp_extract({s()}, {self._choose([repr('([a-z]+)([0-9]*)'), repr('(b)(x)?')])}, {self._choose(['0', '1', '2'])})"
                ),
                lambda: f"split_part({s()}, ',', {self._choose(['1', '2', '-1'])})",
                lambda: f"substring_index({s()}, 'b', {self._choose(['1', '-1', '2'])})",
                lambda: (
                    f"date_format({self._choose(['i.d', 'i.ts'])}, {self._choose([repr('yyyy-MM-dd'), repr('dd/MM/yy'), repr('EEE, d MMM yyyy'), repr('HH:mm:ss.SSS'), repr('yyyyMMddHHmmss'), repr('MMMM D')])})"
                ),
                lambda: "dayname(i.d)",
                lambda: "monthname(i.d)",
                lambda: f"space({w()} % 5)",
                lambda: f"decode(i.n, 1, {s()}, NULL, 'none', {s()})",
                lambda: f"chr({w()})",
                lambda: f"base64({s()})",
            ]
        )()

    def boolean(self, depth: int) -> str:
        b = lambda: self._of("boolean", depth - 1)  # noqa: E731
        if depth <= 0:
            return self._leaf("boolean")
        kind = self._choose(_TYPES)
        one, other = (self._of(kind, depth - 1) for _ in range(2))
        operator = self._choose(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        number, another = (self._leaf(self._choose(("whole", "decimal", "double"))) for _ in range(2))
        s = self._of("string", depth - 1)
        patterns = ["'a%'", "'%b%'", "'_b%'", "'a\\\\_b'", "'%\\\\%%'", "'abc'", "'%ë'", "''"]
        expressions = ["'^a'", "'b$'", "'[0-9]+'", "'a.c'", "'(foo|bar)'", "'^[A-Z]'", "'x?y'", "'\\\\d\\\\d'"]
        return self._choose(
            [
                lambda: f"({one} {operator} {other})",
                lambda: f"({number} {operator} {another})",
                lambda: f"({one} IS {self._choose(['', 'NOT '])}NULL)",
                lambda: f"({b()} AND {b()})",
                lambda: f"({b()} OR {b()})",
                lambda: f"(NOT {b()})",
                lambda: f"({number} BETWEEN {another} AND {self._number()})",
                lambda: f"({self._leaf('whole')} IN (1, 2, {self._choose(['3.5', '-3', 'NULL', '7L'])}))",
                lambda: f"({s} IN ('a', 'abc', {self._choose(['NULL', 'i.word'])}))",
                lambda: f"({s} NOT IN ('a', 'abc'))",
                lambda: f"({s} {self._choose(['LIKE', 'NOT LIKE', 'ILIKE'])} {self._choose(patterns)})",
                lambda: f"({s} LIKE 'a|_b' ESCAPE '|')",
                lambda: f"({s} LIKE ANY ('a%', '%c'))",
                lambda: f"({s} RLIKE {self._choose(expressions)})",
                lambda: f"startswith({s}, {self._choose(['i.word', repr('a')])})",
                lambda: f"endswith({s}, 'c')",
                lambda: f"contains({s}, 'b')",
                lambda: f"isnan({self._of('double', depth - 1)})",
                lambda: f"(i.flag IS {self._choose(['TRUE', 'FALSE', 'NOT TRUE'])})",
                lambda: f"cast({self._leaf(self._choose(('whole', 'decimal', 'double')))} AS boolean)",
                lambda: f"(i.d {operator} {self._choose([repr('2020-02-29'), 'i.ts', repr('2020-1-31')])})",
                lambda: f"(i.n {operator} '3')",
                lambda: f"(i.word = {self._choose([repr('abc'), 'i.s', repr('a')])})",
                lambda: "(i.f = 0.1)",
                lambda: "(i.f = i.x)",
                lambda: "(i.wide > i.big)",
            ]
        )()

    def date(self, depth: int) -> str:
        d, t = (lambda kind=kind: self._of(kind, depth - 1) for kind in ("date", "timestamp"))
        count = self._choose(["1", "-3", "40", "i.tiny", "i.small % 50"])
        return self._choose(
            [
                lambda: f"date_add({d()}, {count})",
                lambda: f"date_sub({d()}, {count})",
                lambda: f"({d()} + {self._choose(['1', '30'])})",
                lambda: f"({d()} - {self._choose(['1', '30'])})",
                lambda: f"({d()} + INTERVAL {self._choose(['1 DAY', '2 MONTH', '1 YEAR', '-1 MONTH', '3 WEEK'])})",
                lambda: f"({d()} - INTERVAL {self._choose(['1 DAY', '13 MONTH', '4 YEAR'])})",
                lambda: f"add_months({d()}, {self._choose(['1', '-1', '13', 'i.tiny % 20'])})",
                lambda: f"last_day({d()})",
                lambda: f"trunc({d()}, {self._choose([repr('MM'), repr('YEAR'), repr('quarter'), repr('week')])})",
                lambda: f"to_date({t()})",
                lambda: f"cast({t()} AS date)",
                lambda: f"coalesce({d()}, {d()})",
                lambda: f"greatest({d()}, {d()})",
                lambda: f"if({self.boolean(depth - 1)}, {d()}, {d()})",
                lambda: f"next_day({d()}, 'MO')",
                lambda: f"try_cast({self._choose(['i.s', repr('2020-02-30'), repr('2020-05-05')])} AS date)",
                lambda: f"cast({self._choose([repr('2020-02-29'), repr('1999-1-2')])} AS date)",
            ]
        )()

    def timestamp(self, depth: int) -> str:
        d, t = (lambda kind=kind: self._of(kind, depth - 1) for kind in ("date", "timestamp"))
        units = ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"]
        return self._choose(
            [
                lambda: f"date_trunc('{self._choose(units)}', {t()})",
                lambda: f"date_trunc('{self._choose(units)}', {d()})",
                lambda: f"({t()} + INTERVAL {self._choose(['1 DAY', '90 MINUTE', '1 MONTH', '5 HOUR', '10 SECOND'])})",
                lambda: f"({t()} - INTERVAL {self._choose(['1 DAY', '1 HOUR', '1 YEAR'])})",
                lambda: f"cast({d()} AS timestamp)",
                lambda: f"coalesce({t()}, {t()})",
                lambda: f"greatest({t()}, {t()})",
                lambda: f"to_timestamp({d()})",
                lambda: f"cast('2020-01-02 {self._choose(['03:04:05', '00:00:00.125'])}' AS timestamp)",
            ]
        )()

    def aggregate(self) -> str:
        number = lambda: self._of(self._choose(("whole", "decimal", "double")), 1)  # noqa: E731
        any_kind = lambda: self._of(self._choose(_TYPES), 1)  # noqa: E731
        distinct = self._choose(["", "", "DISTINCT "])
        text = self._choose(
            [
                lambda: "count(*)",
                lambda: f"count({distinct}{any_kind()})",
                lambda: "count(DISTINCT i.word, i.flag)",
                lambda: f"sum({distinct}{number()})",
                lambda: "sum(i.m)",
                lambda: "sum(i.wide)",
                lambda: f"avg({number()})",
                lambda: f"avg({distinct}i.m)",
                lambda: "avg(i.wide)",
                lambda: f"min({any_kind()})",
                lambda: f"max({any_kind()})",
                lambda: (
                    f"{self._choose(['stddev', 'stddev_pop', 'variance', 'var_pop', 'stddev_samp', 'std'])}(i.{self._choose(['n', 'm', 'tiny', 'x'])})"
                ),
                lambda: f"{self._choose(['covar_pop', 'covar_samp', 'corr'])}(i.n, i.m)",
                lambda: f"count_if({self.boolean(1)})",
                lambda: f"{self._choose(['bool_and', 'bool_or', 'every', 'some'])}({self.boolean(1)})",
                lambda: f"{self._choose(['bit_and', 'bit_or', 'bit_xor'])}(i.{self._choose(['n', 'tiny', 'big'])})",
                lambda: f"{self._choose(['median(i.n)', 'percentile(i.m, 0.25)', 'percentile(i.n, 0.5)'])}",
                lambda: "sum(i.m) / count(i.m)",
                lambda: "sum(i.m) / nullif(sum(i.n), 0)",
                lambda: f"sum(CASE WHEN {self.boolean(1)} THEN i.m ELSE 0 END)",
                lambda: "100.00 * sum(i.m) / nullif(sum(i.wide), 0)",
                lambda: "approx_count_distinct(i.n)",
                lambda: "size(collect_list(i.n))",
                lambda: f"sum(i.n) FILTER (WHERE {self.boolean(1)})",
                lambda: f"{self._choose(['skewness', 'kurtosis'])}(i.n)",
            ]
        )()
        return text
