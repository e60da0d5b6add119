"""Tables of which a part is sampled, or nothing: estimates are near the truth, on plans that a real DuckDB made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from tests.selector.cardinality.counted import Counted

KEYS = 12_000  # more than have cells of their own
SALES, VISITS = 60_000, 30_000
LONG = "a name that is longer than what statistics keep of it, and ends in "
GROUPS = (
    [("sales", "buyer"), ("visits", "visitor"), ("people", "id")],
    [("sales", "shop"), ("shops", "shop_id")],
    [("sales", "bname"), ("people", "name")],
    [("sales", "buyer,shop"), ("visits", "visitor,place")],
)


@cache
def tables() -> dict[str, pa.Table]:
    """Return sales and visits of people, of whom some buy ten times as often; shops of sales, some of them unknown."""
    chance = np.random.default_rng(3)
    keen = chance.random(KEYS) < 0.1
    buys = np.where(keen, 10.0, 1.0) * chance.exponential(1.0, KEYS)
    buys[:5] = buys.sum() / np.array([10, 20, 40, 80, 160])
    buyer = chance.choice(KEYS, SALES, p=buys / buys.sum())
    shop = (buyer * 7 + chance.integers(0, 3, SALES)) % 300
    visitor, visited = chance.integers(0, KEYS * 2 // 3, VISITS), chance.integers(0, 3, VISITS)
    return {
        "sales": pa.table(
            {
                "buyer": pa.array(buyer, mask=chance.random(SALES) < 0.1),
                "shop": pa.array(shop, mask=chance.random(SALES) < 0.2),
                "bname": [f"{LONG}{one}" for one in buyer],
                "price": np.round(chance.exponential(20.0, SALES) + keen[buyer] * 30.0, 2),
            }
        ),
        "visits": pa.table(
            {
                "visitor": pa.array(visitor, mask=chance.random(VISITS) < 0.1),
                "place": (visitor * 7 + visited) % 300,
                "minutes": chance.integers(1, 60, VISITS),
            }
        ),
        "people": pa.table(
            {
                "id": np.arange(KEYS),
                "name": [f"{LONG}{n}" for n in range(KEYS)],
                "kind": np.where(keen, "keen", "calm").tolist(),
            }
        ),
        "shops": pa.table({"shop_id": np.arange(300), "size": np.arange(300) % 10}),
    }


SHARES = {"sales": 0.1, "visits": 0.1, "people": 0.2, "shops": 1.0}


@pytest.fixture(scope="module")
def sampled() -> Iterator[Counted]:
    made = Counted(tables(), GROUPS, sampled=SHARES, by_key=0.2)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def without_samples() -> Iterator[Counted]:
    made = Counted(tables(), GROUPS, sampled=0.0)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def without_keys() -> Iterator[Counted]:
    """Nothing but histograms and common values."""
    made = Counted(tables(), sampled=0.0)
    yield made
    made.connection.close()


SOLD = "SELECT price FROM sales JOIN visits ON buyer = visitor"
BOUGHT = "SELECT price FROM sales JOIN people ON buyer = id"
STATEMENTS = {
    SOLD: 1.1,
    f"{SOLD} WHERE buyer = 1": 1.5,
    f"{SOLD} WHERE visitor IN (0, 2, 4)": 1.5,
    f"{SOLD} WHERE buyer BETWEEN 100 AND 900": 1.3,
    f"{SOLD} AND shop = place": 1.5,
    f"{SOLD} AND shop = place WHERE minutes < 20": 1.5,
    f"{BOUGHT} WHERE kind = 'calm'": 1.2,
    f"{BOUGHT} JOIN shops ON shop = shop_id WHERE size = 3": 1.2,
    f"{BOUGHT} JOIN visits ON id = visitor": 1.1,
    f"{SOLD} JOIN shops ON shop = shop_id WHERE size < 3": 1.5,
    "SELECT price FROM sales JOIN people ON bname = name": 1.1,
    f"SELECT price FROM sales JOIN people ON bname = name WHERE bname = '{LONG}1'": 5.0,  # by samples of either side
    "SELECT price FROM sales LEFT JOIN visits ON buyer = visitor WHERE minutes IS NULL": 1.3,
    "SELECT id FROM people WHERE id IN (SELECT buyer FROM sales)": 1.2,
    "SELECT id FROM people WHERE id NOT IN (SELECT visitor FROM visits WHERE visitor IS NOT NULL)": 1.2,
    "SELECT minutes FROM sales JOIN visits ON buyer = visitor AND price < minutes": 1.4,
    "SELECT buyer, count(*) FROM sales GROUP BY buyer HAVING count(*) > 5": 1.3,
}


@pytest.mark.parametrize(("sql", "times"), STATEMENTS.items())
def test_a_sample_is_near_the_truth(sampled: Counted, sql: str, times: float) -> None:
    assert sampled.count(sql) / times < sampled.rows(sql) < sampled.count(sql) * times


@pytest.mark.parametrize("kept", ["kind = 'keen'", "kind = 'keen' AND price > 40"])
def test_rows_sampled_by_their_key_tell_how_a_filter_goes_with_how_frequent_a_key_is(
    sampled: Counted, without_samples: Counted, kept: str
) -> None:
    sql = f"{BOUGHT} WHERE {kept}"
    true = sampled.count(sql)
    assert sampled.rows(sql) == pytest.approx(true, rel=0.3)
    assert without_samples.rows(sql) < true / 1.5  # nothing else tells it


@pytest.mark.parametrize("keys", [(0,), (3,), (7_000,), (1, 2, 7_000, 11_999)])
@pytest.mark.parametrize("known", ["sampled", "without_samples", "without_keys"])
def test_a_constant_says_the_same_on_either_side_of_a_join(
    known: str, keys: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    tables: Counted = request.getfixturevalue(known)
    listed = ", ".join(map(str, keys))
    texts = (f"buyer IN ({listed})", f"visitor IN ({listed})", f"buyer IN ({listed}) AND visitor IN ({listed})")
    found = [tables.rows(f"{SOLD} WHERE {text}") for text in texts]
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)


WITHOUT_SAMPLES = {
    SOLD: 1.3,
    f"{SOLD} WHERE buyer = 1": 1.5,
    f"{SOLD} WHERE buyer BETWEEN 100 AND 900": 1.3,
    BOUGHT: 1.1,
    f"{BOUGHT} JOIN shops ON shop = shop_id WHERE size = 3": 1.3,
    "SELECT id FROM people WHERE id IN (SELECT buyer FROM sales)": 1.3,
    "SELECT price FROM sales JOIN people ON bname = name": 1.1,
}


@pytest.mark.parametrize(("sql", "times"), WITHOUT_SAMPLES.items())
@pytest.mark.parametrize("known", ["without_samples", "without_keys"])
def test_without_samples_joins_are_near_the_truth(
    known: str, sql: str, times: float, request: pytest.FixtureRequest
) -> None:
    tables: Counted = request.getfixturevalue(known)
    assert tables.count(sql) / times < tables.rows(sql) < tables.count(sql) * times
