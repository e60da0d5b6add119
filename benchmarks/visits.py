"""Visits to a web site, for benchmarks: few very frequent keys, columns that depend on each other, long text.

What estimators that assume uniform and independent columns get wrong. The same seed makes the same rows and statements.
"""

from __future__ import annotations

import random
from pathlib import Path

import duckdb

from benchmarks.claim import step
from benchmarks.statements import Named
from metastore.discovery.inspection import inspect
from sql.tables import TableSource
from statsproc.data.parquet_output import published

VISITS, VISITORS, PAGES, ORDERS = 4_000_000, 300_000, 60_000, 600_000
STATEMENTS = 60
SKEW = 2.5  # exponent: the higher, the fewer keys have most rows
_COUNTRIES = ("DE", "FR", "US", "GB", "IN", "JP", "BR", "IT", "ES", "PL", "NL", "SE", "CA", "AU", "MX", "ZA")

_TABLES = {
    "visitors": f"""
        SELECT i AS visitor, 'visitor number ' || md5(i::VARCHAR) AS name, country,
            country || '-' || (hash(i, 1) % 40) AS city, DATE '2015-01-01' + (hash(i, 2) % 3000)::INTEGER AS since,
            CASE WHEN hash(i, 3) % 10 = 0 THEN NULL ELSE md5(i::VARCHAR) || '@example.org' END AS email
        FROM (SELECT i, ['{"', '".join(_COUNTRIES)}'][1 + (power(random(), 2) * 16)::INTEGER % 16] AS country
            FROM range({VISITORS}) r(i))""",
    "pages": f"""
        SELECT i AS page, 'https://example.org/' || md5((i % 700)::VARCHAR) || '/' || md5(i::VARCHAR) AS url,
            'section ' || (i % 700) AS section, 100 + (hash(i, 1) % 90000) AS bytes
        FROM range({PAGES}) r(i)""",
    "visits": f"""
        SELECT i AS visit, (power(random(), {SKEW}) * {VISITORS})::BIGINT % {VISITORS} AS visitor,
            (power(random(), {SKEW}) * {PAGES})::BIGINT % {PAGES} AS page, country,
            country || '-' || ((power(random(), 2) * 40)::INTEGER % 40) AS city, 'lang-' || country AS language,
            ['phone', 'desktop', 'tablet', 'watch'][1 + (power(random(), 3) * 4)::INTEGER % 4] AS device,
            TIMESTAMP '2024-01-01' + to_seconds((i * 7) // 1) AS at, (power(random(), 6) * 86400)::INTEGER AS seconds,
            random() * 100 AS score
        FROM (SELECT i, ['{"', '".join(_COUNTRIES)}'][1 + (power(random(), 2) * 16)::INTEGER % 16] AS country
            FROM range({VISITS}) r(i))""",
    "orders": f"""
        SELECT i AS order_id, (power(random(), {SKEW}) * {VISITORS})::BIGINT % {VISITORS} AS visitor,
            DATE '2024-01-01' + (hash(i, 1) % 330)::INTEGER AS day,
            ((power(random(), 8) * 100000)::DECIMAL(12, 2)) AS amount, 'note ' || md5(i::VARCHAR) AS note
        FROM range({ORDERS}) r(i)""",
}

_TEMPLATES = (
    "SELECT device, count(*), sum(seconds) FROM visits WHERE seconds > {seconds} GROUP BY device",
    "SELECT country, city, language, count(*) AS n FROM visits GROUP BY country, city, language "
    "ORDER BY n DESC LIMIT 20",
    "SELECT visitor, page, count(*) AS n FROM visits WHERE visit < {visit} GROUP BY visitor, page "
    "ORDER BY n DESC, visitor, page LIMIT 50",
    "SELECT visitor, device, city, max(score) AS best FROM visits WHERE seconds < {seconds} "
    "GROUP BY visitor, device, city ORDER BY best DESC LIMIT 10",
    "SELECT p.section, count(*), max(p.url) FROM visits v JOIN pages p ON v.page = p.page "
    "WHERE v.country = '{country}' GROUP BY p.section",
    "SELECT u.country, count(DISTINCT u.visitor), max(u.name) FROM visits v JOIN visitors u ON v.visitor = u.visitor "
    "WHERE v.seconds > {seconds} GROUP BY u.country",
    "SELECT u.name, u.email, sum(o.amount) AS total FROM orders o JOIN visitors u ON o.visitor = u.visitor "
    "WHERE o.amount > {amount} GROUP BY u.name, u.email ORDER BY total DESC LIMIT 100",
    "SELECT count(*) FROM visits v JOIN orders o ON v.visitor = o.visitor WHERE o.amount > {amount} "
    "AND v.seconds > {seconds}",
    "SELECT v.city, sum(o.amount) FROM visits v JOIN orders o ON v.visitor = o.visitor JOIN pages p ON v.page = p.page "
    "WHERE p.bytes < {bytes} AND o.day >= DATE '2024-0{month}-01' AND v.device = 'watch' GROUP BY v.city",
    "SELECT count(DISTINCT visitor) FROM visits WHERE country = '{country}'",
    "SELECT country, count(DISTINCT visitor), count(DISTINCT page) FROM visits WHERE visit < {visit} GROUP BY country",
    "SELECT visit, visitor, score FROM visits WHERE seconds > {seconds} ORDER BY score DESC, visit LIMIT 1000",
    "SELECT * FROM (SELECT visitor, at, row_number() OVER (PARTITION BY visitor ORDER BY at) AS place FROM visits "
    "WHERE visit < {visit}) x WHERE place = 3 ORDER BY visitor LIMIT 100",
    "SELECT visitor, count(*) AS n FROM visits WHERE country = '{country}' GROUP BY visitor HAVING count(*) > 20 "
    "ORDER BY n DESC, visitor LIMIT 100",
    "SELECT max(u.email), count(*) FROM visitors u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE "
    "o.visitor = u.visitor AND o.amount > {amount})",
    "SELECT o.note, o.amount FROM orders o WHERE o.visitor IN (SELECT visitor FROM visits WHERE seconds > {seconds}) "
    "ORDER BY o.amount DESC, o.note LIMIT 500",
    "SELECT substr(p.url, 1, 40) AS site, count(*) AS n FROM visits v JOIN pages p ON v.page = p.page "
    "WHERE v.visit < {visit} GROUP BY substr(p.url, 1, 40) ORDER BY n DESC, site LIMIT 100",
    "SELECT date_trunc('HOUR', at) AS hour, device, count(*), avg(score) FROM visits WHERE visit < {visit} "
    "GROUP BY date_trunc('HOUR', at), device ORDER BY hour, device",
    "SELECT a.visitor, count(*) AS pairs FROM orders a JOIN orders b ON a.visitor = b.visitor AND a.day = b.day "
    "WHERE a.amount > {amount} GROUP BY a.visitor ORDER BY pairs DESC, a.visitor LIMIT 20",
    "SELECT u.city, min(u.since), collect_list(o.note) AS notes FROM orders o JOIN visitors u ON o.visitor = u.visitor "
    "WHERE o.amount > {amount} AND u.country = '{country}' GROUP BY u.city",
)


def tables(data: Path, seed: int = 1) -> tuple[TableSource, ...]:
    """Return the tables, made where they are not there yet."""
    folder = data.absolute() / f"visits-{seed}"
    if not folder.exists():
        step(f"making visits in {folder}")
        with published(folder) as draft, duckdb.connect(config={"threads": 1}) as connection:
            draft.mkdir()
            for name, sql in _TABLES.items():
                connection.execute(f"SELECT setseed({1 / (1 + seed)})")
                connection.execute(f"COPY ({sql}) TO '{draft / name}.parquet' (FORMAT parquet)")
    return tuple(inspect(file.stem, file).source for file in sorted(folder.glob("*.parquet")))


def statements(seed: int = 1, number: int = STATEMENTS) -> list[Named]:
    """Return statements: every template in turn, with other literals."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    made = []
    for place in range(number):
        values = {
            "seconds": round(86_400 * chance.random() ** 3),
            "visit": round(VISITS * chance.random() ** 1.5),
            "country": chance.choice(_COUNTRIES),
            "amount": round(100_000 * chance.random() ** 8),
            "bytes": chance.randrange(1_000, 90_000),
            "month": chance.randrange(1, 10),
        }
        made.append(Named(f"visits-{place + 1}", _TEMPLATES[place % len(_TEMPLATES)].format(**values)))
    return made
