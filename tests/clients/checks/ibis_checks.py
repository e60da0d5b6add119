"""ibis over Impala's protocol, as its documentation tells: no option of ours, no dialect set."""

from __future__ import annotations

import functools
import os
from typing import Any

import ibis
import pytest
from asking import ask


@functools.cache
def connected() -> Any:
    return ibis.impala.connect(host="127.0.0.1", port=int(os.environ["CLIENTS_PORT"]), database="default")


@functools.cache
def sales() -> Any:
    return connected().table("sales")


def test_list_tables() -> None:
    assert {"sales", "sales_of_may"} <= set(connected().list_tables())


def test_list_tables_like() -> None:
    assert set(connected().list_tables(like="sales")) == {"sales", "sales_again", "sales_of_may"}


def test_list_databases() -> None:
    assert "default" in connected().list_databases()


def test_version() -> None:
    assert connected().version


def test_schema() -> None:
    assert {name: str(kind) for name, kind in sales().schema().items()} == {
        "place": "string",
        "amount": "decimal(10, 2)",
        "day": "date",
        "moment": "timestamp(6)" if "(" in str(sales().schema()["moment"]) else "timestamp",
    }


def test_describe() -> None:
    described = connected().describe_formatted("sales")
    assert [name.strip() for name, _ in described.schema] == ["place", "amount", "day", "moment"]


def test_info() -> None:
    assert dict(sales().info().to_pandas()[["name", "nulls"]].itertuples(index=False)) == dict.fromkeys(
        sales().columns, 0
    )


def test_group_by() -> None:
    total = sales().group_by("place").agg(total=sales().amount.sum(), rows=sales().count()).order_by("place")
    assert [tuple(row) for row in total.to_pandas()[["place", "rows"]].itertuples(index=False)] == [
        ("Gera", 2),
        ("Ulm", 4),
    ]


@pytest.mark.parametrize("unit", ["Y", "Q", "M", "D", "h"])
def test_truncated_times(unit: str) -> None:
    names = {"Y": "year", "Q": "quarter", "M": "month", "D": "day", "h": "hour"}
    found = sales().select(m=sales().moment.truncate(unit)).order_by("m").to_pandas()["m"]
    expected = ask(
        f"SELECT date_format(date_trunc('{names[unit]}', moment), 'yyyy-MM-dd HH:mm:ss') AS m FROM sales ORDER BY m"
    )
    assert [str(moment) for moment in found] == [row[0] for row in expected]


def test_parts_of_times() -> None:
    table = sales()
    parts = table.select(
        y=table.moment.year(), w=table.moment.day_of_week.index(), n=table.moment.day_of_week.full_name()
    )
    first = parts.order_by(["y", "w"]).limit(1).to_pandas().iloc[0]
    assert (first["y"], first["w"], first["n"]) == (2023, 6, "Sunday")


def test_texts() -> None:
    table = sales()
    names = table.select(
        u=table.place.upper(), s=table.place.substr(0, 2), f=table.place.find("a"), r=table.place.re_search("^G")
    )
    rows = {tuple(row) for row in names.to_pandas().itertuples(index=False)}
    assert rows == {("ULM", "Ul", -1, False), ("GERA", "Ge", 3, True)}


def test_case_and_cast() -> None:
    table = sales()
    kind = ibis.cases((table.amount > 5, "much"), else_="little")
    rows = table.select(kind=kind, whole=table.amount.cast("int64")).order_by("whole").to_pandas()
    assert list(rows["kind"]) == ["little"] * 4 + ["much"] * 2


def test_window() -> None:
    table = sales()
    ranked = table.mutate(n=ibis.row_number().over(group_by=table.place, order_by=table.moment))
    assert ranked.filter(ranked.n == 0).count().to_pandas() == 2


def test_join() -> None:
    table, again = sales(), connected().table("sales_again")
    assert table.join(again, table.moment == again.moment).count().to_pandas() == 6


def test_approx_nunique() -> None:
    assert sales().place.approx_nunique().to_pandas() == 2


def test_approx_median() -> None:
    assert sales().amount.cast("float64").approx_median().to_pandas() > 0


def test_create_table_with_nulls() -> None:
    connected().create_table("from_ibis", schema=ibis.schema({"a": "int64", "b": "string", "c": "double"}))
    connected().raw_sql("INSERT INTO from_ibis VALUES (1, 'x', 0.5), (NULL, NULL, NULL)").close()
    rows = connected().table("from_ibis").order_by("a").to_pandas()
    assert len(rows) == 2
    assert rows["b"].isna().tolist() == [False, True]  # Impala puts NULL last
    table = connected().table("from_ibis")
    assert table.a.count().to_pandas() == 1
    assert table.b.fill_null("none").to_pandas().tolist().count("none") == 1


def test_create_table_of_an_expression() -> None:
    connected().create_table("copied_by_ibis", sales().filter(sales().place == "Ulm"))
    assert connected().table("copied_by_ibis").count().to_pandas() == 4


def test_create_table_of_a_frame() -> None:
    import pandas

    connected().create_table("frame_of_ibis", pandas.DataFrame({"n": [1, 2, 3], "t": ["a", "b", "c"]}))
    assert connected().table("frame_of_ibis").n.sum().to_pandas() == 6


def test_insert_and_truncate() -> None:
    connected().create_table("filled_by_ibis", sales().limit(0))
    connected().insert("filled_by_ibis", sales())
    assert connected().table("filled_by_ibis").count().to_pandas() == 6
    connected().truncate_table("filled_by_ibis")
    assert connected().table("filled_by_ibis").count().to_pandas() == 0


def test_views() -> None:
    connected().create_view("viewed_by_ibis", sales().select("place").distinct(), overwrite=True)
    assert connected().table("viewed_by_ibis").count().to_pandas() == 2
    connected().drop_view("viewed_by_ibis")
    assert "viewed_by_ibis" not in connected().list_tables()


def test_drop_table() -> None:
    connected().create_table("dropped_by_ibis", sales().limit(1))
    connected().drop_table("dropped_by_ibis")
    assert "dropped_by_ibis" not in connected().list_tables()


def test_databases() -> None:
    connected().create_database("of_ibis", force=True)
    connected().create_table("t", sales().limit(2), database="of_ibis")
    assert connected().list_tables(database="of_ibis") == ["t"]
    assert connected().table("t", database="of_ibis").count().to_pandas() == 2
    connected().drop_database("of_ibis", force=True)
    assert "of_ibis" not in connected().list_databases()


def test_rename_and_stats() -> None:
    connected().create_table("named_by_ibis", sales().limit(2))
    connected().rename_table("named_by_ibis", "renamed_by_ibis")
    connected().compute_stats("renamed_by_ibis")
    assert "renamed_by_ibis" in connected().list_tables()


def test_options() -> None:
    connected().set_options({"mem_limit": "1g"})
    assert sales().count().to_pandas() == 6
