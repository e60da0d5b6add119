"""SQLAlchemy's dialects of PyHive and impyla, and pandas on top of them, against a real DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, MetaData, Table, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError, OperationalError

from tests.gateway.conftest import BOOKS, TRANSACTIONS
from tests.gateway.drivers.hs2.conftest import Drivers

pytest.importorskip("pyhive", reason="needs the extra hive")
pytest.importorskip("impala", reason="needs the extra impala")
pandas = pytest.importorskip("pandas", reason="reading a frame needs pandas")

pytestmark = [  # of the dialects, about themselves
    pytest.mark.filterwarnings("ignore:.*will not make use of SQL compilation caching"),
    pytest.mark.filterwarnings("ignore:The dbapi\\(\\) classmethod"),
]
COLUMNS = ["id", "isbn", "category", "publish_date", "publisher", "price"]


@pytest.fixture(scope="module", params=["hive", "impala", "hive+http"])
def engine(bookshop: Drivers, request: pytest.FixtureRequest) -> Iterator[Engine]:
    port = bookshop.http_port if request.param == "hive+http" else bookshop.port
    login = "?auth_mechanism=PLAIN&user=joe&password=any" if request.param == "impala" else ""
    user = "" if login else "joe@"
    made = create_engine(f"{request.param}://{user}{bookshop.host}:{port}/default{login}")
    yield made
    made.dispose()


def test_reflection(engine: Engine) -> None:
    inspector = inspect(engine)
    assert inspector.get_schema_names() == ["default"]
    assert inspector.get_table_names() == ["books", "transactions"]
    assert inspector.get_table_names(schema="default") == ["books", "transactions"]
    assert [column["name"] for column in inspector.get_columns("books")] == COLUMNS
    assert inspector.has_table("books")
    assert not inspector.has_table("nowhere")
    assert inspector.get_foreign_keys("books") == []
    kind = DBAPIError if engine.dialect.name == "impala" else NoSuchTableError
    with pytest.raises(kind, match="nowhere"):
        Table("nowhere", MetaData(), autoload_with=engine)


def test_queries(engine: Engine) -> None:
    books = Table("books", MetaData(), autoload_with=engine)
    sales = Table("transactions", MetaData(), autoload_with=engine)
    first = select(books.c.id, books.c.publish_date, books.c.isbn).where(books.c.category == "category 1")
    joined = select(func.count()).select_from(books.join(sales, books.c.id == sales.c.book_id))
    with engine.connect() as connection:
        row = connection.execute(first.order_by(books.c.id).limit(1)).one()
        assert tuple(row) == (1, dt.date(1990, 1, 2), "978-0000000001")
        assert connection.execute(joined).scalar() == TRANSACTIONS
        assert connection.execute(text("SELECT :x AS v"), {"x": "it's \\ `so`"}).scalar() == "it's \\ `so`"


def test_pandas(engine: Engine) -> None:
    frame = pandas.read_sql("SELECT id, price, publisher FROM books ORDER BY id", engine)
    assert list(frame.columns) == ["id", "price", "publisher"]
    assert (len(frame), frame["price"].sum()) == (BOOKS, sum(i % 100 for i in range(1, BOOKS + 1)))
    pieces = pandas.read_sql("SELECT id FROM transactions", engine, chunksize=1_024)
    assert sum(len(piece) for piece in pieces) == TRANSACTIONS


def test_an_error_is_told_in_our_words(engine: Engine) -> None:
    kind = DBAPIError if engine.dialect.name == "impala" else OperationalError
    with engine.connect() as connection, pytest.raises(kind, match="There is no table book; did you mean books"):
        connection.execute(text("SELECT id FROM book"))
