"""The paper's bookstore (Table 1), made up: books, customers, transactions, at any scale.

Every value is a Spark SQL expression of the row's id, the seed and the column's name, so that a table is the
same whatever made it and in however many parts; only the division into files follows from the number of rows.
What an estimator finds hard is in the data on purpose: skewed prices and quantities, popular books, publishers
that go with categories, dates that go with ids.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from statsproc.data import bookstore_names as names
from statsproc.data.parquet_output import ROW_GROUP_ROWS, published, write_parquet
from statsproc.spark.session import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_ROWS = 8 * ROW_GROUP_ROWS

# Table 1 of the paper.
BOOKS = 126_227_290
CUSTOMERS = 105_800_433
TRANSACTIONS = 339_799_026

LOWEST_PRICE, HIGHEST_PRICE = 3.0, 150.0
MEDIAN_PRICE = 42.0
PRICE_SPREAD = 1.325  # 80 % of the books are below 80
HIGHEST_QUANTITY = 100
QUANTITY_SKEW = 1.5
BOOK_SKEW = 0.75  # the most popular book of 3.9M has 0.4 % of the sales
CATEGORY_SKEW = 0.8
FICTION_SHARE = 0.4
PUBLISHERS_PER_CATEGORY = 16
GREAT_HOUSE_SHARE = 0.75  # of its category: 30 % of all books are fiction of one house
PUBLISHER_SKEW = 0.9
FIRST_NAME_SKEW = 0.8
LAST_NAME_SKEW = 0.35
STATE_SKEW = 0.7
NULL_EMAILS, NULL_PHONES = 0.02, 0.05

TWO_53 = 9_007_199_254_740_992  # a uniform double has 53 bits


class Distribution(StrEnum):
    """Distributions of prices and quantities."""

    SKEWED = "skewed"
    UNIFORM = "uniform"


class Format(StrEnum):
    """File formats of the tables. text: the paper's ``|``-delimited lines, without a header."""

    PARQUET = "parquet"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Bookstore:
    """The paper's bookstore. scale: share of the paper's rows; seed: seed of the values."""

    scale: float
    seed: int = 42
    distribution: Distribution = Distribution.SKEWED

    def __post_init__(self) -> None:
        if not 0.0 < self.scale <= 100.0:
            raise ValueError(f"scale must lie above 0 and at most 100, not {self.scale}")

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        sizes = {"books": BOOKS, "customers": CUSTOMERS, "transactions": TRANSACTIONS}
        return {table: max(1, round(size * self.scale)) for table, size in sizes.items()}

    def columns(self, table: str) -> dict[str, str]:
        """Return a table's columns as Spark SQL expressions of ``id``, in order."""
        makers = {"books": self._books, "customers": self._customers, "transactions": self._transactions}
        return makers[table]()

    def _books(self) -> dict[str, str]:
        category = f"CAST({self._category()} AS INT)"
        publisher = f"({category} * {PUBLISHERS_PER_CATEGORY} + {self._publisher_rank()})"
        age = f"pow(1 - (id - 1) / {self.rows['books']}D, 2)"
        days = f"CAST({age} * {64 * 365} + {self._uniform('publish_date')} * 700 AS INT)"
        return {
            "id": "id",
            "isbn": self._isbn(),
            "category": _pick(names.CATEGORIES, category),
            "publish_date": f"date_sub(DATE'2024-12-31', {days})",
            "publisher": _pick(names.publishers(len(names.CATEGORIES) * PUBLISHERS_PER_CATEGORY), publisher),
            "price": self._price(),
        }

    def _customers(self) -> dict[str, str]:
        first = (
            f"IF(pmod({self._hash('gender')}, 2) = 0, "
            f"{_pick(names.FEMALE_NAMES, self._rank('first', FIRST_NAME_SKEW, len(names.FEMALE_NAMES)))}, "
            f"{_pick(names.MALE_NAMES, self._rank('first', FIRST_NAME_SKEW, len(names.MALE_NAMES)))})"
        )
        last = _pick(names.LAST_NAMES, self._rank("last", LAST_NAME_SKEW, len(names.LAST_NAMES)))
        age = f"({self._uniform('born')} + {self._uniform('born later')}) / 2"
        mailer = _pick(names.MAIL_DOMAINS, self._rank("domain", 1.2, len(names.MAIL_DOMAINS)))
        digits = self._hash("phone")
        return {
            "id": "id",
            "name": f"concat({first}, ' ', upper({last}))",
            "date_of_birth": f"date_sub(DATE'2008-12-31', CAST({age} * {78 * 365} AS INT))",
            "gender": f"IF(pmod({self._hash('gender')}, 2) = 0, 'F', 'M')",
            "state": _pick(names.STATES, self._rank("state", STATE_SKEW, len(names.STATES))),
            "email": (
                f"IF({self._uniform('no email')} < {NULL_EMAILS}D, NULL, "
                f"concat(lower({first}), '.', lower({last}), id, '@', {mailer}))"
            ),
            "phone": (
                f"IF({self._uniform('no phone')} < {NULL_PHONES}D, NULL, "
                f"concat('+1-', 200 + pmod({digits}, 800), '-', 200 + pmod(shiftright({digits}, 20), 800), "
                f"'-', 1000 + pmod(shiftright({digits}, 40), 9000)))"
            ),
        }

    def _transactions(self) -> dict[str, str]:
        rows = self.rows
        books = rows["books"]
        popularity = self._rank("book_id", BOOK_SKEW, books)
        day = f"(id - 1) / {rows['transactions']}D * {10 * 365} + {self._uniform('transaction_date')} * 7"
        return {
            "id": "id",
            "customer_id": f"1 + CAST({self._uniform('customer_id')} * {rows['customers']} AS BIGINT)",
            # so that popularity is not the order of the ids: a bijection of 0 .. books - 1
            "book_id": f"1 + pmod({popularity} * {_coprime(books)}L + {books // 3}L, {books}L)",
            "quantity": self._quantity(),
            "transaction_date": f"date_add(DATE'2015-01-01', CAST({day} AS INT))",
        }

    def _hash(self, column: str) -> str:
        """Write 64 random bits of a row and a column, as a bigint."""
        digest = hashlib.sha256(f"{self.seed}/{column}".encode()).digest()
        return f"xxhash64(id, {int.from_bytes(digest[:7], 'big')}L)"

    def _uniform(self, column: str) -> str:
        """Write a double in the open interval 0 .. 1."""
        return f"((shiftrightunsigned({self._hash(column)}, 11) + 0.5D) / {TWO_53}D)"

    def _rank(self, column: str, skew: float, ranks: int) -> str:
        """Write a rank in 0 .. ranks - 1 that is Zipf-distributed, as a bigint."""
        return zipf_rank(self._uniform(column), skew, ranks)

    def _category(self) -> str:
        other = zipf_rank(
            f"(({self._uniform('category')} - {FICTION_SHARE}D) / {1 - FICTION_SHARE}D)",
            CATEGORY_SKEW,
            len(names.CATEGORIES) - 1,
        )
        return f"IF({self._uniform('category')} < {FICTION_SHARE}D, 0L, 1 + {other})"

    def _publisher_rank(self) -> str:
        other = zipf_rank(
            f"(({self._uniform('publisher')} - {GREAT_HOUSE_SHARE}D) / {1 - GREAT_HOUSE_SHARE}D)",
            PUBLISHER_SKEW,
            PUBLISHERS_PER_CATEGORY - 1,
        )
        rank = f"IF({self._uniform('publisher')} < {GREAT_HOUSE_SHARE}D, 0L, 1 + {other})"
        return f"CAST({rank} AS INT)"

    def _isbn(self) -> str:
        """Write an ISBN-13 with its hyphens and its check digit; no two books share one."""
        body = f"pmod(id * 381966011L + {self.seed % 1_000_000_000}L, 1000000000L)"
        digits = [f"pmod({body} DIV {10**place}L, 10)" for place in range(8, -1, -1)]
        weighted = " + ".join(f"{3 if place % 2 == 0 else 1} * {digit}" for place, digit in enumerate(digits))
        check = f"pmod(10 - pmod(38 + {weighted}, 10), 10)"  # 38 = 9 + 3 * 7 + 8
        text = f"lpad({body}, 9, '0')"
        return (
            f"concat('978-', substr({text}, 1, 1), '-', substr({text}, 2, 4), '-', substr({text}, 6, 4), '-', {check})"
        )

    def _price(self) -> str:
        if self.distribution is Distribution.UNIFORM:
            share = self._uniform("price")
        else:  # logit-normal: skewed like a log-normal, but with an upper end
            middle = math.log((MEDIAN_PRICE - LOWEST_PRICE) / (HIGHEST_PRICE - MEDIAN_PRICE))
            normal = (  # Box and Muller
                f"(sqrt(-2 * ln({self._uniform('price')})) * cos({2 * math.pi}D * {self._uniform('price angle')}))"
            )
            share = f"(1 / (1 + exp(-({middle}D + {PRICE_SPREAD}D * {normal}))))"
        return f"round({LOWEST_PRICE}D + {HIGHEST_PRICE - LOWEST_PRICE}D * {share}, 2)"

    def _quantity(self) -> str:
        if self.distribution is Distribution.UNIFORM:
            return f"1 + CAST({self._uniform('quantity')} * {HIGHEST_QUANTITY} AS INT)"
        return f"1 + CAST({self._rank('quantity', QUANTITY_SKEW, HIGHEST_QUANTITY)} AS INT)"


def zipf_rank(uniform: str, skew: float, ranks: int) -> str:
    """Write a Zipf-distributed rank 0 .. ranks - 1, as a bigint, from a uniform one in 0 .. 1.

    The inverse distribution function of the density x ** -skew on [1, ranks + 1), rounded down: a continuous
    approximation, in which the first rank is somewhat rarer than in the discrete distribution.
    """
    if skew == 1.0:
        raise ValueError("skew 1 needs another formula")
    power = 1.0 - skew
    reach = (ranks + 1.0) ** power - 1.0
    x = f"pow(1 + {uniform} * {reach}D, {1.0 / power}D)"
    return f"least(CAST({x} AS BIGINT) - 1, {ranks - 1}L)"


def make_table(spark: SparkSession, bookstore: Bookstore, table: str) -> DataFrame:
    """Return a table in id order, in the parts that become its files."""
    rows = bookstore.rows[table]
    ids = spark.range(1, rows + 1, 1, math.ceil(rows / FILE_ROWS))
    return ids.selectExpr(*(f"{expression} AS {name}" for name, expression in bookstore.columns(table).items()))


def write_table(
    spark: SparkSession, bookstore: Bookstore, table: str, folder: Path, form: Format = Format.PARQUET
) -> Path:
    """Write a table into a folder of its name, whole or not at all; one that is there is replaced."""
    target = folder / table
    with published(target) as draft, spark_errors():
        rows = make_table(spark, bookstore, table)
        if form is Format.TEXT:
            rows.write.csv(str(draft), sep="|", header=False, escape='"')
        else:
            write_parquet(rows, draft)
    return target


def _pick(words: Sequence[str], index: str) -> str:
    listed = ", ".join("'" + word.replace("'", "\\'") + "'" for word in words)
    return f"element_at(array({listed}), CAST({index} AS INT) + 1)"


def _coprime(size: int) -> int:
    """Return a multiplier without a common factor with ``size``, near its golden section."""
    factor = max(1, int(size * 0.6180339887))
    while math.gcd(factor, size) != 1:
        factor += 1
    return factor
