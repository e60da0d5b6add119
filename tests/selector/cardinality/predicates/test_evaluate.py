"""The evaluator and the domains beside DuckDB: each predicate must keep the very rows that the engine keeps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.cardinality.predicates.conditions import domain_of, parsed
from selector.cardinality.predicates.evaluate import truth
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import as_key

ROWS = 60
TYPES = {
    "i": "int",
    "n": "bigint",
    "d": "double",
    "m": "decimal(10,2)",
    "s": "string",
    "t": "string",
    "day": "date",
    "ts": "timestamp",
    "b": "boolean",
}
SQL_TYPES = {"string": "VARCHAR"}
WORDS = ("", "a", "ab", "abc", "abd", "b", "Ba", "a_b", "a%b", "éa", "x.y", "12", "-3", "2021-03-01")


@cache
def table() -> tuple[duckdb.DuckDBPyConnection, dict[str, list[Any]]]:
    random = np.random.default_rng(11)

    def column(values: Sequence[Any], nulls: float = 0.15) -> list[Any]:
        return [None if random.random() < nulls else value for value in values]

    days = [dt.date(2019, 12, 25) + dt.timedelta(days=int(d)) for d in random.integers(0, 900, ROWS)]
    times = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=int(s)) for s in random.integers(0, 50_000_000, ROWS)]
    columns = {
        "i": column(random.integers(-12, 12, ROWS).tolist()),
        "n": column(random.integers(0, 5, ROWS).tolist(), 0.4),
        "d": column((random.integers(-40, 40, ROWS) / 8).tolist()),
        "m": column((random.integers(-500, 500, ROWS) / 100).tolist()),
        "s": column(random.choice(WORDS, ROWS).tolist()),
        "t": column(random.choice(WORDS[:6], ROWS).tolist()),
        "day": column(days),
        "ts": column(times),
        "b": column((random.random(ROWS) < 0.4).tolist()),
    }
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    fields = ", ".join(f"{name} {SQL_TYPES.get(kind, kind)}" for name, kind in TYPES.items())
    connection.execute(f"CREATE TABLE data ({fields})")
    rows = list(zip(*columns.values(), strict=True))
    connection.executemany(f"INSERT INTO data VALUES ({', '.join('?' * len(TYPES))})", rows)
    return connection, columns


@cache
def sample() -> RowSample:
    columns = {}
    for name, values in table()[1].items():
        nulls = np.array([value is None for value in values])
        if TYPES[name] == "string":
            held = np.array(["" if value is None else value for value in values], dtype=object)
        else:
            held = np.array(
                [0.0 if value is None else as_key(value, TYPES[name]) for value in values], dtype=np.float64
            )
        columns[name] = SampleColumn.of(held, nulls)
    return RowSample(ROWS, 1.0, columns)


@cache
def kept_by_duckdb(predicate: str) -> tuple[bool, ...]:
    rows = table()[0].execute(f"SELECT coalesce(({predicate}), false) FROM data ORDER BY rowid").fetchall()
    return tuple(bool(kept) for (kept,) in rows)


def kept_by_sample(predicate: str) -> tuple[bool, ...] | None:
    mask = truth(sqlglot.parse_one(predicate, read="duckdb"), sample(), TYPES, dialect="duckdb")
    return None if mask is None else tuple(mask.tolist())


def kept_by_domain(predicate: str) -> tuple[bool, ...] | None:
    """Apply the domains of all conjuncts to the rows; None if one has no domain."""
    conditions = parsed(predicate, "duckdb")
    assert conditions is not None
    kept = [True] * ROWS
    for condition in conditions:
        (name,) = condition.columns if len(condition.columns) == 1 else ("",)
        domain = domain_of(condition, TYPES[name]) if name else None
        if domain is None:
            return None
        keys = [None if value is None else as_key(value, TYPES[name]) for value in table()[1][name]]
        kept = [
            before and (domain.nulls if key is None else domain.holds(key))
            for before, key in zip(kept, keys, strict=True)
        ]
    return tuple(kept)


ANSWERED = """
i = 3 | i <> 3 | i < 3 | 3 >= i | i BETWEEN -3 AND 4 | i NOT BETWEEN -3 AND 4 | i IN (1, 2, 5) | i NOT IN (1, 2, 5)
i IN (1, NULL) | i NOT IN (1, NULL) | i IS NULL | i IS NOT NULL | i = NULL | i IS DISTINCT FROM 3
i IS NOT DISTINCT FROM 3 | i IS DISTINCT FROM NULL | i + 2 < 5 | 2 - i < 5 | i * 3 = 9 | -i > 3 | 7 < i * -2
i - 1 >= 2.5 | i / 2 > 1 | i // 2 = 1 | i // 3 >= -1 | i // 3 < 0 | abs(i) > 3 | abs(i - 1) <= 2 | i = 2.5 | i < 2.5
i >= 2.5 | i > 2.5 | CAST(i AS DOUBLE) / 2.0 > 1.5 | CAST(i AS VARCHAR) = '3' | CAST(i AS VARCHAR) <> '3'
CAST(i AS VARCHAR) IN ('1', '-2') | d < 1.25 | d >= 1.25 | round(d) = 2 | floor(d) = -1 | ceil(d) = 2 | floor(d) > 0
ceil(d) <= -1 | round(d, 1) >= 0.5 | CAST(d AS DECIMAL(10,3)) < 0.5 | m = 1.25 | m <= 1.25 | m > 1.25 | m * 2 < 3
m + 1.5 >= 2.25 | m < 1.255 | s = 'ab' | s > 'ab' | s <= 'abc' | s LIKE 'ab%' | s NOT LIKE 'ab%' | s LIKE 'ab'
s IN ('a', 'b') | prefix(s, 'a') | NOT prefix(s, 'a') | starts_with(s, 'ab') | substr(s, 1, 1) = 'a'
left(s, 2) = 'ab' | left(s, 2) > 'a' | left(s, 2) < 'ab' | left(s, 1) IN ('a', 'b') | s = '' | s LIKE '%'
s LIKE 'a!_%' ESCAPE '!' | regexp_matches(s, '^ab') | day < DATE '2021-01-05' | day >= '2021-01-05'
year(day) = 2020 | year(day) > 2020 | year(day) <> 2020 | year(day) IN (2019, 2021) | extract(year FROM ts) = 2020
date_part('year', ts) = 2021 | day + 3 < DATE '2020-06-01' | day + INTERVAL 3 DAY < DATE '2020-06-01'
day - INTERVAL 2 DAY >= TIMESTAMP '2020-06-01 00:00:00' | ts + INTERVAL 90 MINUTE < TIMESTAMP '2020-06-01 12:00:00'
(day + '3 days'::INTERVAL) < '2020-02-01 00:00:00'::TIMESTAMP | CAST(ts AS DATE) = DATE '2020-03-04'
CAST(ts AS DATE) <= DATE '2020-08-04' | CAST(ts AS DATE) > DATE '2020-08-04'
date_trunc('month', ts) = TIMESTAMP '2020-05-01' | date_trunc('month', ts) >= DATE '2020-05-10'
date_trunc('week', ts) < TIMESTAMP '2020-05-06' | date_trunc('year', day) = DATE '2020-01-01'
date_trunc('quarter', ts) <= TIMESTAMP '2020-04-01' | date_trunc('hour', ts) > TIMESTAMP '2020-05-01 10:00:00'
day < TIMESTAMP '2020-08-04 12:00:00' | day >= TIMESTAMP '2020-08-04 12:00:00' | ts < DATE '2020-08-04' | b | NOT b
b = TRUE | b <> TRUE | b IS TRUE | b IS NOT TRUE | b IS FALSE | (i > 3) IS TRUE | (i > 3) IS NOT TRUE
coalesce(n, 0) = 0 | coalesce(n, 0) <> 0 | coalesce(n, 2) < 3 | coalesce(n, 9) IN (1, 9) | nullif(n, 3) = 2
nullif(n, 3) IS NULL | CASE WHEN n = 1 THEN 10 WHEN n < 4 THEN 20 ELSE 30 END > 15
CASE n WHEN 1 THEN 'x' ELSE 'y' END = 'y' | CASE WHEN n > 2 THEN n < 4 ELSE n = 1 END
CASE WHEN n IS NULL THEN TRUE ELSE n = 1 END | if(n > 2, 1, 0) = 1 | coalesce(n, NULL) IS NULL
CASE WHEN n = 1 THEN NULL ELSE n END = 2 | n = 1 OR n = 3 OR n IS NULL | NOT (n = 1 OR n > 3) | i > 2 AND i < 4
(i > 2 AND i <= 6) OR i = 9 | NOT (i > 2 AND i <= 6) | TRUE | i > -100
"""
SAMPLED = """
i = n | i < n | i + n > 3 | i < n OR i > 5 | i < n AND s = 'a' | NOT (i < n) | i % 3 = 1 | i % 3 = -1 | d * d > 4
power(i, 2) > 9 | s LIKE '%b' | s LIKE '%a%' | s LIKE '_b%' | s NOT LIKE '%b%' | s ILIKE '%A%' | s ILIKE 'BA'
contains(s, 'b') | suffix(s, 'b') | s LIKE '%!%%' ESCAPE '!' | regexp_matches(s, 'a.b?')
regexp_full_match(s, 'a.*') | s SIMILAR TO '(a|b).*' | s < t | s = t | regexp_matches(s, 'A', 'i') | lower(s) = 'ba'
upper(s) = 'AB' | length(s) = 2 | length(s) > n | trim(s) = 'a' | s || t = 'aab' | concat(s, t) = 'ab'
concat(s, 'x') = 'x' | replace(s, 'a', 'z') = 'zb' | instr(s, 'b') = 2 | substr(s, 2) = 'b'
substring(s, 2, 1) = 'b' | right(s, 1) = 'b' | reverse(s) = 'ba' | s || 'x' IS NULL | month(day) = 3
month(ts) IN (1, 2) | quarter(day) = 2 | day(day) > 20 | dayofweek(day) = 1 | dayofyear(day) < 50 | hour(ts) = 5
minute(ts) < 30 | extract(second FROM ts) < 10 | date_part('month', ts) = 4 | hour(ts) > n
datediff('day', day, CAST(ts AS DATE)) > 10 | datediff('month', day, ts) > 2 | datediff('year', day, ts) = 1
day - CAST(ts AS DATE) > 10 | day + INTERVAL 1 MONTH < ts | day + INTERVAL 1 YEAR > ts | day < ts
CAST(day AS VARCHAR) < '2021' | coalesce(i, n, 0) = 0 | coalesce(s, t) = 'a' | CASE WHEN i > 0 THEN n ELSE i END = 2
CASE WHEN b THEN i > 0 ELSE n > 2 END | greatest(i, n) > 3 | least(i, n) < 1 | nullif(i, n) IS NULL | i IN (n, 3)
i BETWEEN n AND 9 | b = (i > 2) | b AND i > 0 | b OR i > 0 | NOT b OR n IS NULL | (b AND NULL) IS NULL
round(m, 1) = 0.5 | round(d * 3, 1) > 2 | CAST(d AS INTEGER) = 2 | CAST(m AS INTEGER) = 2
try_cast(s AS INTEGER) = 12 | CAST(b AS INTEGER) = 1 | sqrt(abs(i)) > 2 | CAST(ts AS DATE) = day
date_trunc('month', ts) = date_trunc('month', day) | i IS DISTINCT FROM n | i IS NOT DISTINCT FROM n
CAST(i AS VARCHAR) || s = '3a' | date_add(day, INTERVAL 3 DAY) > ts | i / n > 2
"""
UNKNOWN = """
hash(i) = 3 | s COLLATE nocase = 'a' | md5(s) = 'x' | i IN (SELECT 3) | strftime(ts, '%Y') = '2020' | random() < i
"""


def listed(texts: str) -> list[str]:
    return [part.strip() for line in texts.strip().splitlines() for part in line.split(" | ")]


@pytest.mark.parametrize("predicate", [*listed(ANSWERED), *(p for p in listed(SAMPLED) if p != "i / n > 2")])
def test_the_evaluator_keeps_the_rows_that_duckdb_keeps(predicate: str) -> None:
    assert kept_by_sample(predicate) == kept_by_duckdb(predicate)


@pytest.mark.parametrize("predicate", listed(ANSWERED))
def test_a_domain_keeps_the_rows_that_duckdb_keeps(predicate: str) -> None:
    if predicate != "TRUE":
        assert kept_by_domain(predicate) == kept_by_duckdb(predicate)


@pytest.mark.parametrize("predicate", [*listed(UNKNOWN), "i / n > 2", "nothing = 3", "s > 3", "i = day", "i LIKE 'a'"])
def test_what_is_not_known_has_no_answer(predicate: str) -> None:
    assert kept_by_sample(predicate) is None


atoms = st.sampled_from([p for p in [*listed(ANSWERED), *listed(SAMPLED)] if p != "i / n > 2"])
trees = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, inner, inner, inner),
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=150)
@given(trees)
def test_predicates_put_together_keep_the_rows_that_duckdb_keeps(predicate: str) -> None:
    assert kept_by_sample(predicate) == kept_by_duckdb(predicate)
    by_domain = kept_by_domain(predicate)
    assert by_domain is None or by_domain == kept_by_duckdb(predicate)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["i", "i + 1", "2 * i", "3 - i", "i // 2", "abs(i)", "d", "round(d)", "floor(d)", "d / 4", "m"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.integers(-60, 60).map(lambda n: n / 4),
)
def test_numbers_beside_any_constant(function: str, comparison: str, constant: float) -> None:
    predicate = f"{function} {comparison} {constant}"
    assert kept_by_domain(predicate) == kept_by_sample(predicate) == kept_by_duckdb(predicate)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["day", "ts", "CAST(ts AS DATE)", "date_trunc('month', ts)", "day + INTERVAL 5 DAY"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.datetimes(dt.datetime(2019, 12, 1), dt.datetime(2022, 9, 1)),
    st.booleans(),
)
def test_times_beside_any_constant(function: str, comparison: str, time: dt.datetime, as_day: bool) -> None:
    constant = f"DATE '{time.date()}'" if as_day else f"TIMESTAMP '{time}'"
    predicate = f"{function} {comparison} {constant}"
    assert kept_by_domain(predicate) == kept_by_sample(predicate) == kept_by_duckdb(predicate)


@settings(deadline=None)
@given(st.sampled_from(["=", "<", ">="]), st.sampled_from(["s", "left(s, 1)", "left(s, 2)"]), st.sampled_from(WORDS))
def test_strings_beside_any_constant(comparison: str, function: str, word: str) -> None:
    predicate = f"{function} {comparison} '{word}'"
    assert kept_by_domain(predicate) == kept_by_sample(predicate) == kept_by_duckdb(predicate)
