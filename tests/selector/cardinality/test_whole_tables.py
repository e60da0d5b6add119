"""Tables of which the sample holds every row: every estimate is the truth, on plans that a real DuckDB made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.selector.cardinality.counted import Counted

SIZES = (("a", 400, 60), ("b", 250, 40), ("c", 90, 60))  # rows, keys
LONG = "a name that is longer than what statistics keep of it, and ends in "


def rows_of(name: str, seed: int, rows: int, keys: int) -> pa.Table:
    """Return a table: keys k and m with NULLs, of which k is skewed; v goes with k; long text and days as keys."""
    chance = np.random.default_rng(seed)
    k = (chance.zipf(1.4, rows) - 1) % keys
    m = chance.integers(0, 8, rows)
    named = chance.random(rows) > 0.1
    return pa.table(
        {
            f"{name}k": pa.array(k.astype(np.int64), mask=chance.random(rows) < 0.1),
            f"{name}m": pa.array(m.astype(np.int64), mask=chance.random(rows) < 0.2),
            f"{name}v": pa.array(((k + chance.integers(0, 2, rows)) % 9).astype(np.int64)),
            f"{name}name": pa.array([f"{LONG}{key}" if there else None for key, there in zip(k, named, strict=True)]),
            f"{name}d": pa.array((18_000 + k).astype(np.int32), pa.date32()),
            f"{name}x": pa.array(np.round(chance.exponential(20.0, rows), 1)),
        }
    )


@pytest.fixture(scope="module")
def tables() -> Iterator[Counted]:
    some = {name: rows_of(name, seed, rows, keys) for seed, (name, rows, keys) in enumerate(SIZES)}
    unique = pa.table({"uk": pa.array(np.arange(50)), "uname": [f"{LONG}{n}" for n in range(50)]})
    made = Counted({**some, "u": unique})
    yield made
    made.connection.close()


AB = "SELECT ax FROM a JOIN b ON ak = bk"
CONSTANTS = [
    f"{AB} WHERE {text}"
    for text in (
        "ak = 1",
        "bk = 1",
        "ak = 1 AND bk = 1",
        "ak = 1 AND bk = 2",
        "ak IN (0, 2, 5)",
        "bk IN (0, 2, 5)",
        "ak IN (0, 1, 2) AND bk IN (1, 2, 3)",
        "ak BETWEEN 3 AND 11",
        "bk > 4",
        "ak > 2 AND bk < 9",
        "ak <> 0",
        "ak = 1000",
    )
]
COMPOSITE = "SELECT ax FROM a JOIN b ON ak = bk AND am = bm"
JOINS = [
    AB,
    f"{AB} WHERE av = 3",
    f"{AB} WHERE av < 4 AND bx > 15 AND ax < 40",
    "SELECT ax FROM a JOIN b ON ad = bd WHERE av = 2",
    "SELECT ax FROM a JOIN b ON am = bm JOIN c ON am = cm",
    "SELECT ax FROM a JOIN b ON ak = bk JOIN c ON ak = ck",
    "SELECT ax FROM a JOIN b ON ak = bk JOIN c ON bk = ck WHERE cv < 5",
    "SELECT ax FROM a JOIN b ON ak = bk JOIN c ON ak = ck WHERE bk = 1",
    "SELECT ax FROM a JOIN b ON ak = bk JOIN c ON bm = cm",
    "SELECT ax FROM a JOIN b ON ak = bk JOIN c ON bm = cm WHERE av > 3 AND cx < 20",
    "SELECT ax FROM u JOIN a ON uk = ak JOIN b ON am = bm",
    COMPOSITE,
    f"{COMPOSITE} WHERE ak = 1",
    f"{COMPOSITE} WHERE bm = 3",
    f"{COMPOSITE} WHERE am IN (1, 2) AND bv < 5",
    f"{COMPOSITE} WHERE ak > 2 AND bm < 6",
]
STRINGS = [
    "SELECT ax FROM a JOIN b ON aname = bname",
    f"SELECT ax FROM a JOIN b ON aname = bname WHERE aname = '{LONG}1'",
    f"SELECT ax FROM a JOIN b ON aname = bname WHERE bname IN ('{LONG}1', '{LONG}3')",
    "SELECT ax FROM a JOIN u ON aname = uname WHERE av < 5",
    f"SELECT ax FROM a WHERE aname = '{LONG}2'",
    f"SELECT ax FROM a WHERE aname <> '{LONG}2'",
    "SELECT ax FROM a LEFT JOIN b ON aname = bname AND am = bm",
]
OUTER = [
    "SELECT ax FROM a WHERE EXISTS (SELECT 1 FROM b WHERE bk = ak AND bk IS NULL)",
    "SELECT ax FROM a LEFT JOIN (SELECT * FROM b WHERE bk = 0 AND bk IS NULL) b ON ak = bk",
    *(
        f"SELECT ax FROM a {kind} b ON ak = bk{more}"
        for kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        for more in ("", " WHERE av < 5", " WHERE bk IS NULL", " WHERE ak IS NULL", " WHERE bx IS NULL")
    ),
    *(
        f"SELECT ax FROM a {kind} b ON ak = bk{more}"
        for kind in ("SEMI JOIN", "ANTI JOIN")
        for more in ("", " AND am = bm", " WHERE av < 5", " WHERE ak = 1", " WHERE ak IN (1, 39, 50)")
    ),
    "SELECT ax FROM a LEFT JOIN b ON ak = bk AND bv < 4",
    "SELECT ax FROM a WHERE ak IN (SELECT bk FROM b WHERE bv < 3)",
    "SELECT ax FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE bk = ak AND bv < 3)",
    "SELECT uk FROM u LEFT JOIN a ON uk = ak WHERE ax IS NULL",
    "SELECT ax FROM a LEFT JOIN b ON ak = bk JOIN c ON am = cm",
    "SELECT ax FROM a JOIN c ON am = cm LEFT JOIN b ON ak = bk WHERE cv > 2",
]
SAME_TABLE = [
    "SELECT p.ax FROM a p JOIN a q ON p.ak = q.av AND p.am = q.am JOIN a r ON q.ak = r.av AND q.am = r.am",
    "SELECT p.ax FROM a p JOIN a q ON p.ak = q.ak WHERE p.av = 3",
    "WITH w AS MATERIALIZED (SELECT ak, av, ax FROM a WHERE av < 5) SELECT p.ax FROM w p JOIN w q ON p.ak = q.ak",
    "WITH w AS MATERIALIZED (SELECT ak, av, ax FROM a WHERE av < 5) "
    "SELECT p.ax FROM w p JOIN w q ON p.ak = q.ak WHERE p.av = 2 AND q.av = 3",
    "WITH w AS (SELECT ak, am, ax FROM a WHERE am = 3) SELECT p.ax FROM w p JOIN w q ON p.ak = q.ak",
]
MANY = ", ".join(map(str, range(1, 60, 3)))  # which DuckDB joins as rows
LISTED = [
    f"SELECT ax FROM a WHERE ak IN ({MANY})",
    f"SELECT ax FROM a WHERE ak NOT IN ({MANY})",
    f"SELECT ax FROM a JOIN b ON ak = bk WHERE ak IN ({MANY})",
    f"SELECT ax FROM a JOIN b ON am = bm WHERE ak IN ({MANY})",
]
GROUPS = [
    "SELECT DISTINCT ak FROM a",
    "SELECT DISTINCT ak, am FROM a WHERE av < 5",
    "SELECT aname, count(*) FROM a GROUP BY aname",
    "SELECT ak, count(*) FROM a WHERE ax > 10 GROUP BY ak",
    "SELECT av % 3, am, count(*) FROM a GROUP BY ALL",
    "SELECT ak, count(*) FROM a GROUP BY ak HAVING count(*) > 3",
    "SELECT ak, am, count(*) FROM a WHERE av < 7 GROUP BY ak, am HAVING count(*) = 2",
    "SELECT ak, count(*) FROM a JOIN b ON ak = bk GROUP BY ak",
    "SELECT bk, count(*) FROM a JOIN b ON ak = bk WHERE av = 3 GROUP BY bk",
    "SELECT am, count(*) FROM a JOIN b ON ak = bk WHERE bv > 6 GROUP BY am",
    "SELECT ak, av, count(*) FROM a SEMI JOIN c ON ak = ck GROUP BY ak, av",
    "SELECT ax FROM a JOIN (SELECT bk, count(*) AS n FROM b GROUP BY bk) g ON ak = bk",
    "SELECT ax FROM a JOIN (SELECT bk, bm, count(*) AS n FROM b GROUP BY bk, bm) g ON ak = bk AND am = bm "
    "JOIN c ON bk = ck",
    "SELECT ax FROM a JOIN (SELECT bk, count(*) AS n FROM b GROUP BY bk HAVING count(*) > 4) g ON ak = bk",
]
RANKED = [
    f"SELECT * FROM (SELECT ak, {call} OVER (PARTITION BY {by} ORDER BY {order}) AS r FROM a{where}) t WHERE r <= {n}"
    for call, by, order, where, n in (
        ("row_number()", "ak", "ax, av, am, ad", "", 2),
        ("rank()", "am", "av", "", 5),
        ("rank()", "am", "av DESC", " WHERE ax > 5", 3),
        ("dense_rank()", "am", "av", "", 2),
    )
]
STATEMENTS = {
    "constants": CONSTANTS,
    "joins": JOINS,
    "strings": STRINGS,
    "outer": OUTER,
    "same table": SAME_TABLE,
    "listed": LISTED,
    "groups": GROUPS,
    "ranked": RANKED,
}


@pytest.mark.parametrize(
    "sql", [pytest.param(sql, id=f"{kind} {n}") for kind, all_ in STATEMENTS.items() for n, sql in enumerate(all_)]
)
def test_an_estimate_is_the_truth(tables: Counted, sql: str) -> None:
    assert tables.rows(sql) == pytest.approx(tables.count(sql), rel=1e-6, abs=1e-6)


NEARLY = {
    "ax FROM a JOIN b ON ak = bk AND av < bv": 1.01,
    "ax FROM a JOIN b ON ak = bk AND ax <> bx": 1.01,
    "ax FROM a JOIN b ON ak = bk WHERE ax > 2 * bx AND am = 3": 1.01,
    "ax FROM a JOIN b ON ak = bk AND am = bm AND av <= bv": 1.01,
    # whether any group has a size is a matter of chance
    "n, count(*) FROM (SELECT ak, count(*) AS n FROM a GROUP BY ak) t GROUP BY n": 1.1,
    # marks of two lists, and of a list and a condition, are taken as independent
    f"ax FROM a WHERE am IN (1, 2, 3) OR ak IN ({MANY})": 1.3,
    "ax FROM a WHERE ak IN (SELECT bk FROM b) OR av = 3": 1.1,
    # a condition on the side of which no row is lost goes with no key
    "ax FROM a RIGHT JOIN b ON ak = bk AND bv < 4": 1.4,
    "ax FROM a FULL JOIN b ON ak = bk AND bv < 4": 1.4,
    # a value that is computed is no column with a class
    "ax FROM a JOIN b ON ak = bk AND av + 1 = bv": 3.0,
}


@pytest.mark.parametrize(("rest", "times"), NEARLY.items())
def test_an_estimate_is_near_the_truth(tables: Counted, rest: str, times: float) -> None:
    found, true = tables.rows(f"SELECT {rest}"), tables.count(f"SELECT {rest}")
    assert true / times < found < true * times
