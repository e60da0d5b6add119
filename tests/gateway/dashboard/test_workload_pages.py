"""Pages and routes over many queries: the overview, the search, templates, estimates and the savings ledger."""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.query_pages import record_queries
from gateway.dashboard import listing, overview
from gateway.dashboard.drawings.scatter import LEFT, Scatter
from gateway.http.searching import read_place, written_place
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from gateway.settings import PricingSettings
from metastore.query_log.search import QueryOrder, QueryPlace
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import SMALL, ScriptedGateway, scripted_gateway, too_big

COUNT = 300
MIB = 1 << 20


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path / "home")


@pytest.fixture
def client(scripted: ScriptedGateway) -> Iterator[httpx.Client]:
    with serving(create_app(scripted.gateway)) as client:
        yield client


@pytest.fixture
def filled(scripted: ScriptedGateway, client: httpx.Client) -> httpx.Client:
    record_queries(scripted.gateway.settings.metastore_url, COUNT)
    return client


def run(client: httpx.Client, sql: str) -> str:
    return str(client.post("/v1/queries", json={"sql": sql}).json()["id"])


def page_of(client: httpx.Client, path: str) -> str:
    reply = client.get(path)
    assert reply.status_code == 200, reply.text
    return html.unescape(reply.text)


def ids_on(page: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"/dashboard/queries/(\d{8}_\d{6}_\w+)", page)))


def test_two_clicks_lead_from_the_overview_to_the_reason_of_a_failover(client: httpx.Client) -> None:
    small, over = run(client, SMALL), run(client, too_big())
    page = page_of(client, "/dashboard")
    row = next(row for row in page.split("<tr>") if "<td>spark" in row)
    link = re.search(r'href="([^"]*failed_over=1)"', row)
    assert link is not None
    found = page_of(client, link.group(1))
    assert ids_on(found) == [over] and small not in found
    assert "duckdb ran out of memory" in page_of(client, f"/dashboard/queries/{over}")


def test_numbers_of_the_overview_lead_to_as_many_queries(filled: httpx.Client) -> None:
    page = page_of(filled, "/dashboard?last=week")
    links = re.findall(r'href="(/dashboard/queries\?last=week[^"]*)">([\d,]+)<', page)
    assert len(links) >= 9
    for address, count in links:
        assert number_found(filled, address) == int(count.replace(",", "")), address


def test_queries_that_no_engine_ran_are_those_of_their_number(client: httpx.Client) -> None:
    run(client, SMALL)
    refused = client.post("/v1/queries", json={"sql": "SELECT * FROM nowhere"}).json()["error"]["query_id"]
    row = next(row for row in page_of(client, "/dashboard").split("<tr>") if "refused, or run by the gateway" in row)
    link = re.search(r'href="([^"]*)">1<', row)
    assert link is not None
    assert ids_on(page_of(client, link.group(1))) == [refused]


def number_found(client: httpx.Client, address: str) -> int:
    seen: list[str] = []
    following: str | None = address
    while following:
        page = page_of(client, following)
        seen += ids_on(page)
        more = re.search(r'<a href="([^"]*)" rel="next">', page)
        following = more.group(1) if more else None
    assert len(seen) == len(set(seen))
    return len(seen)


def test_sums_are_computed_again_after_a_while(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No query yet" in page_of(client, "/dashboard?last=week")
    run(client, SMALL)
    assert "No query ended" in page_of(client, "/dashboard?last=week")
    monkeypatch.setattr(overview, "KEPT_S", dict.fromkeys(listing.WINDOWS, 0.0))
    assert "<td>duckdb</td>" in page_of(client, "/dashboard?last=week")


@pytest.mark.parametrize("order", ["submitted", "seconds", "expected", "peak"])
def test_a_search_is_sorted_and_paged_by_its_address(filled: httpx.Client, order: str) -> None:
    address = f"/dashboard/queries?reason=FITS&order={order}"
    page = page_of(filled, address)
    assert 'aria-sort="descending"' in page
    assert number_found(filled, address) == len(found(filled, reason="FITS"))
    turned = page_of(filled, address + "&ascending=1")
    assert ids_on(page)[0] != ids_on(turned)[0]


def found(client: httpx.Client, **parameters: str | float) -> list[str]:
    """Return the ids that the interface finds, over all its pages."""
    ids: list[str] = []
    wanted, after = {name: str(value) for name, value in parameters.items()}, ""
    while True:
        reply = client.get("/v1/queries", params={"limit": "70", "after": after} | wanted)
        assert reply.status_code == 200, reply.text
        ids += [query["id"] for query in reply.json()["queries"]]
        after = reply.json()["next"]
        if not after:
            return ids


def test_the_interface_finds_the_same_queries_as_the_page(filled: httpx.Client) -> None:
    everything = found(filled)
    assert len(everything) == COUNT == len(set(everything))
    assert everything == sorted(everything, reverse=True)
    assert len(found(filled, text="name 29'")) == 1
    assert set(found(filled, user="user7")) == {
        query["id"] for query in filled.get("/v1/queries?limit=1000").json()["queries"] if query["user"] == "user7"
    }
    slow = filled.get("/v1/queries", params={"order": "seconds", "limit": 5}).json()["queries"]
    seconds = [query["summary"]["seconds"] for query in slow]
    assert seconds == sorted(seconds, reverse=True)
    assert found(filled, least_s=seconds[-1]) == sorted((query["id"] for query in slow), reverse=True)


@pytest.mark.parametrize(
    "parameters", [{"state": "NO"}, {"order": "no"}, {"least_s": "-1"}, {"after": "nonsense"}, {"limit": 0}]
)
def test_bad_parameters_are_refused_by_the_interface(client: httpx.Client, parameters: dict[str, str]) -> None:
    reply = client.get("/v1/queries", params=parameters)
    assert reply.status_code in (400, 422)
    assert reply.json()["error"]["code"] in ("BAD_REQUEST", "INVALID_BODY")


@pytest.mark.parametrize(
    "address",
    [
        "order=no&after=x",
        "after=2026-01-01~",
        "after=~",
        "after=nan~q&order=seconds",
        "after=inf~q&order=seconds",
        f"after={'9' * 400}~q&order=rows",
        "after=0001-01-01T00:00:00%2B23:00~q",
        "least_s=x",
        "least_s=nan",
        "last=century",
        "text=%00",
        "id=%25",
        f"text={'x' * 5000}",
    ],
)
def test_the_page_takes_any_address(filled: httpx.Client, address: str) -> None:
    assert filled.get(f"/dashboard/queries?{address}").status_code == 200


def test_a_text_tells_nobody_of_values_in_statements_of_others(scripted: ScriptedGateway, tmp_path: Path) -> None:
    users = tmp_path / "users"
    lines = [
        user_line("user7", "a", Role.READER),
        user_line("eve", "b", Role.READER),
        user_line("op", "c", Role.OPERATOR),
    ]
    users.write_text("\n".join(lines), encoding="utf-8")
    scripted.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    record_queries(scripted.gateway.settings.metastore_url, COUNT)
    with serving(create_app(scripted.gateway)) as client:
        for login, count in ((("op", "c"), COUNT), (("eve", "b"), 0)):
            client.auth = login
            assert len(found(client, text="name ")) == count
        client.auth = ("user7", "a")
        own = found(client, text="name ")
        assert own == found(client, user="user7") != []
        assert "your own statements only" in page_of(client, "/dashboard/queries?text=name")


def test_templates_link_to_their_queries(filled: httpx.Client) -> None:
    page = page_of(filled, "/dashboard/templates?last=week")
    address, count = re.findall(r'href="(/dashboard/queries\?last=week&template=\w+)">(\d+)<', page)[0]
    assert number_found(filled, address) == int(count)


def test_estimates_are_drawn(filled: httpx.Client) -> None:
    page = page_of(filled, "/dashboard/estimates?last=week")
    drawn = page.count("<circle ")
    assert drawn > 0
    assert f"Measured against expected peaks of {drawn} queries" in page


def test_equal_peaks_lie_on_the_line() -> None:
    scatter = Scatter.of([("a", 10 * MIB, 10 * MIB), ("b", 100 * MIB, 100 * MIB), ("c", 1 * MIB, 50 * MIB)])
    left, bottom, right, top = scatter.diagonal
    for point in scatter.points[:2]:
        assert (point.x - left) / (right - left) == pytest.approx((bottom - point.y) / (bottom - top), abs=0.01)
    assert scatter.points[2].x < scatter.points[0].x < scatter.points[1].x
    assert [tick.text for tick in scatter.along] == ["1.0 MiB", "10 MiB", "100 MiB"]
    assert scatter.median_error == pytest.approx(1.0)
    assert Scatter.of([]).points == () and min(tick.at for tick in scatter.along) >= LEFT


def test_the_ledger_is_told_as_a_page_as_json_and_as_csv(scripted: ScriptedGateway, client: httpx.Client) -> None:
    prices = PricingSettings.model_validate({"duckdb_per_hour": 1.0, "spark_per_hour": 4.0})
    scripted.gateway.settings = scripted.gateway.settings.model_copy(update={"pricing": prices})
    record_queries(scripted.gateway.settings.metastore_url, COUNT)
    since = (dt.datetime.now(dt.UTC) - dt.timedelta(days=40)).isoformat()
    (whole,) = client.get("/v1/savings", params={"since": since}).json()["savings"]
    assert whole["queries"] == COUNT
    assert whole["saved_s"] == pytest.approx(whole["alone_s"] - whole["spent_s"])
    assert 0.0 < whole["forecast_share"] < 1.0
    assert whole["alone_money"] == pytest.approx(4.0 * whole["alone_s"] / 3_600)
    assert whole["saved_money"] == pytest.approx(whole["alone_money"] - whole["spent_money"])
    for by in ("day", "user", "pool", "template"):
        lines = client.get("/v1/savings", params={"since": since, "by": by}).json()["savings"]
        assert sum(line["spent_s"] for line in lines) == pytest.approx(whole["spent_s"])
        assert sum(line["queries"] for line in lines) == COUNT
        text = client.get("/v1/savings", params={"since": since, "by": by, "format": "csv"}).text
        assert len(list(csv.DictReader(io.StringIO(text)))) == len(lines)
        assert client.get(f"/dashboard/savings?by={by}&last=week").status_code == 200
    assert client.get("/v1/savings", params={"by": "no"}).status_code == 422


def test_a_price_that_is_missing_leaves_money_unknown(filled: httpx.Client) -> None:
    (whole,) = filled.get("/v1/savings").json()["savings"]
    assert (whole["spent_money"], whole["saved_money"]) == (None, None)
    assert "pricing.ENGINE_per_hour" in page_of(filled, "/dashboard/savings?last=week")


def test_places_are_read_as_they_are_written() -> None:
    at = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, dt.UTC)
    for order, value in ((QueryOrder.SUBMITTED, at), (QueryOrder.SECONDS, 0.1 + 0.2), (QueryOrder.PEAK, 1 << 40)):
        place = QueryPlace(value, "q~1")
        assert read_place(order, written_place(place)) == place
    assert read_place(QueryOrder.SUBMITTED, "2026-01-01~q") is None
