"""Data sets with knobs, for what real ones happen not to have: a shop with orders, made by DuckDB from a seed.

``python -m benchmarks.generated_data DIR made-1`` makes ``DIR/made-1``, of seed 1. The knobs are drawn from the seed
and written into ``schema.json``; a test or a study sets its own. Values come from hashes of row numbers, so that
neither threads nor chance change them.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.claim import step
from benchmarks.data_sets import SCHEMA, TABLES, write

NAMES = ("made-2", "made-3", "made-6", "made-7")  # of the first ten seeds, those whose knobs are farthest apart
_PRIME = 1_299_709  # spreads frequent keys over the range of keys; no table has a multiple of it

_JOINS = (
    "orders(customer) = customers(customer)",
    "orders(store) = stores(store)",
    "customers(region) = regions(region)",
    "stores(region) = regions(region)",
    "regions(country) = countries(country)",
    "lines(order_id) = orders(order_id)",
    "lines(maker, code) = products(maker, code)",
    "products(category) = categories(category)",
    "events(customer) = customers(customer)",
    "events(customer) = orders(customer)",
    "events(customer, day) = orders(customer, day)",
    "events(maker, code) = products(maker, code)",
    "orders(customer, store) = orders(customer, store)",
    "lines(maker, code) = lines(maker, code)",
)


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the data is like.

    skew: 1 for uniform keys; a key's rank is its share of the keys to this power. correlated: share of rows where a
    column follows from another one of its row. by_frequency: share of keys whose attributes follow from how frequent
    the key is. nulls: their share in columns that may have them. dangling: share of keys without a row on the other
    side. prefix: characters that strings have in common. composite: how many codes a maker has; the more, the less
    its first column tells.
    """

    seed: int
    rows: int = 300_000
    skew: float = 2.0
    correlated: float = 0.7
    by_frequency: float = 0.7
    nulls: float = 0.1
    dangling: float = 0.02
    prefix: int = 8
    composite: int = 30

    @classmethod
    def drawn(cls, seed: int) -> Knobs:
        """Draw them, as different from each other as data sets are."""
        chance = random.Random(f"knobs {seed}")  # noqa: S311 - not for secrets
        return cls(
            seed=seed,
            rows=chance.choice([100_000, 300_000, 600_000]),
            skew=chance.choice([1.0, 1.5, 2.5, 4.0]),
            correlated=chance.choice([0.0, 0.5, 0.9, 1.0]),
            by_frequency=chance.choice([0.0, 0.5, 1.0]),
            nulls=chance.choice([0.0, 0.05, 0.3, 0.8]),
            dangling=chance.choice([0.0, 0.02, 0.2]),
            prefix=chance.choice([0, 4, 12, 30]),
            composite=chance.choice([3, 30, 300]),
        )


def write_shop(folder: Path, knobs: Knobs) -> None:
    """Write the tables, what joins them and the knobs."""
    write(folder, tables(knobs), _JOINS)
    content = {**json.loads((folder / SCHEMA).read_text(encoding="utf-8")), "knobs": asdict(knobs)}
    (folder / SCHEMA).write_text(json.dumps(content, indent=1), encoding="utf-8")


def tables(knobs: Knobs) -> Mapping[str, str]:
    """Return the SQL of each table."""
    customers, stores, regions, makers = knobs.rows // 20 + 7, 211, 97, knobs.rows // 3_000 + 11
    products, orders, events = makers * knobs.composite, knobs.rows // 3, knobs.rows // 2

    def even(salt: str) -> str:
        """Return a number between 0 and 1 for each row i."""
        return f"((hash(i || ' {salt} {knobs.seed}') % 9007199254740992) / 9007199254740992.0)"

    def below(number: int, salt: str, skew: float = 1.0) -> str:
        return f"(power({even(salt)}, {skew}) * {number})::BIGINT % {number}"

    def key(number: int, salt: str) -> str:
        """Return a skewed foreign key; the frequent ones lie anywhere, some have no row on the other side."""
        spread = f"(({below(number, salt, knobs.skew)}) * {_PRIME}) % {number}"
        return (
            f"CASE WHEN {even(salt + ' lost')} < {knobs.dangling} THEN {number} + {below(50, salt)} ELSE {spread} END"
        )

    def frequency(number: int, column: str) -> str:
        """Return a key's rank among the frequent ones, between 0 and 1, from where its value lies."""
        return f"((({column}) * {pow(_PRIME, -1, number)}) % {number}) / {number}.0"

    def nullable(sql: str, salt: str) -> str:
        return f"CASE WHEN {even(salt + ' null')} < {knobs.nulls} THEN NULL ELSE {sql} END"

    def follows(sql: str, otherwise: str, salt: str, share: float) -> str:
        return f"CASE WHEN {even(salt + ' follows')} < {share} THEN {sql} ELSE {otherwise} END"

    def day(begin: str, days: int, salt: str, skew: float = 1.0) -> str:
        return f"DATE '{begin}' + ({below(days, salt, skew)})::INTEGER"

    common = f"'{('an-ordinary-beginning-' * 2)[: knobs.prefix]}'"
    words = "['red', 'small', 'of steel', 'for the garden', 'heavy', 'new', 'second hand', 'light', 'blue', 'round']"
    text = " || ' ' || ".join(f"{words}[1 + {below(10, f'word {n}', 2.0)}]" for n in range(6))
    kind = f"['view', 'search', 'buy', 'leave'][1 + {below(4, 'kind', 2.0)}]"
    rank = frequency(customers, "i")
    segment = follows(f"({rank} * 4)::BIGINT", below(5, "segment"), "segment", knobs.by_frequency)
    living = follows(f"({rank} * {regions})::BIGINT % {regions}", below(regions, "home"), "home", knobs.by_frequency)
    category = follows(f"(i // {knobs.composite}) % 41", below(41, "category", 2.0), "category", knobs.correlated)
    status = follows("channel % 3", below(3, "status"), "status", knobs.correlated)
    shipped = follows("channel % 5", below(30, "shipped", 2.0), "shipped", knobs.correlated)
    quantity = follows("product % 7 + 1", f"{below(12, 'many', 2.0)} + 1", "quantity", knobs.correlated)
    discount = nullable(f"{below(50, 'discounted', 2.0)} / 100.0", "discount")
    seen = f"kind = 'view' OR {even('seen')} < {knobs.correlated / 2}"
    maker, code = f"product // {knobs.composite}", f"product % {knobs.composite}"
    return {
        "countries": f"SELECT i AS country, 'country ' || i AS name, {below(5, 'continent', 2.0)} AS continent "
        "FROM range(19) r(i)",
        "regions": f"SELECT i AS region, {below(19, 'country', knobs.skew)} AS country, 'region ' || i AS name, "
        f"{below(9_000_000, 'people', 4.0)} AS people FROM range({regions}) r(i)",
        "categories": f"SELECT i AS category, {common} || 'category-' || i AS name, {below(4, 'tax')} AS tax "
        "FROM range(41) r(i)",
        "stores": f"SELECT i AS store, {below(regions, 'region', knobs.skew)} AS region, "
        f"{day('1990-01-01', 9_000, 'opened')} AS opened, {nullable(below(5_000, 'area', 2.0), 'area')} AS area "
        f"FROM range({stores}) r(i)",
        "customers": f"SELECT i AS customer, {common} || 'customer-' || i AS name, {segment} AS segment, "
        f"{living} AS region, {day('2010-01-01', 5_000, 'since')} AS since, "
        f"{nullable(f'{common} || md5(i::VARCHAR)', 'email')} AS email FROM range({customers}) r(i)",
        "products": f"SELECT i // {knobs.composite} AS maker, i % {knobs.composite} AS code, {category} AS category, "
        f"({below(100_000, 'price', 3.0)} / 100)::DECIMAL(10, 2) AS price, "
        f"{nullable(below(12, 'colour', 2.0), 'colour')} AS colour, {text} AS description FROM range({products}) r(i)",
        "orders": f"SELECT i AS order_id, customer, store, day, channel, {status} AS status, "
        f"day + ({shipped})::INTEGER AS shipped, ({below(1_000_000, 'total', 5.0)} / 100.0)::DOUBLE AS total FROM ("
        f"SELECT i, {key(customers, 'customer')} AS customer, {key(stores, 'store')} AS store, "
        f"{day('2022-01-01', 1_000, 'day', 1.3)} AS day, {below(7, 'channel', 2.5)} AS channel "
        f"FROM range({orders}) r(i))",
        "lines": f"SELECT i AS line, {below(orders, 'order', 1.2)} AS order_id, {maker} AS maker, {code} AS code, "
        f"{quantity} AS quantity, {discount} AS discount "
        f"FROM (SELECT i, {key(products, 'product')} AS product FROM range({knobs.rows}) r(i))",
        "events": f"SELECT i AS event, customer, moment::DATE AS day, moment, kind, "
        f"{common} || 'page-' || page AS page, CASE WHEN {seen} THEN {maker} END AS maker, "
        f"CASE WHEN {seen} THEN {code} END AS code FROM ("
        f"SELECT i, {key(customers, 'event customer')} AS customer, {kind} AS kind, {below(900, 'page', 3.0)} AS page, "
        f"TIMESTAMP '2022-01-01' + to_seconds({below(86_400_000, 'moment')}) AS moment, "
        f"{key(products, 'event product')} AS product FROM range({events}) r(i))",
    }


def make(folder: Path, names: Iterable[str] = NAMES) -> None:
    """Make those data sets that are not there yet; a name is ``made-`` and a seed, other names are not looked at."""
    for name in names:
        seed = name.removeprefix("made-")
        if seed != name and seed.isdigit() and not (folder / name / TABLES).exists():
            knobs = Knobs.drawn(int(seed))
            step(f"making {name}: {knobs}")
            write_shop(folder / name, knobs)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or NAMES)
