"""Rights by a policy service: a gateway obeys what an agent says, and closes everything when it says nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engines.duckdb.engine import DuckDBEngine
from gateway.cli.setup.doctor import examine
from gateway.security.access.policy_file import GONE
from gateway.security.access.policy_service import PolicyService
from gateway.security.access.settings import AccessSettings, OpaSettings
from gateway.security.principals import Principal, Role
from gateway.settings import load
from sql.errors import UnknownTable
from tests.gateway.house import House, opened
from tests.gateway.security.access.policy_agent import PolicyAgent, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(find_spec("regopy") is None, reason="regopy is not installed: pip install regopy")

ROOT = Principal("root", Role.ADMIN, authenticated=True)
ANN, OLGA, EVE = (Principal(name, Role.READER, authenticated=True) for name in ("ann", "olga", "eve"))
FINN = Principal("finn", Role.READER, authenticated=True, groups=frozenset({"finance"}))
ROWS = "SELECT id, salary FROM hr.people ORDER BY id"
HEADS = {"heads": {"ann": "sales"}}
KEY = "opens the agent"


@pytest.fixture
def agent() -> Iterator[PolicyAgent]:
    with serving(PolicyAgent(HEADS, KEY)) as agent:
        yield agent


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


@pytest.fixture
def house(tmp_path: Path, engine: DuckDBEngine, agent: PolicyAgent) -> Iterator[House]:
    folder = tmp_path / "people"
    folder.mkdir()
    people = {"id": [1, 2, 3], "dept": ["sales", "it", "sales"], "salary": [10, 20, 30]}
    pq.write_table(pa.table(people), folder / "1.parquet")
    opa = {"url": agent.url, "token": KEY, "refresh_s": 0.1, "max_age_s": 1.0, "timeout_s": 0.5}
    with opened(tmp_path / "home", engine, access={"opa": opa}) as house:
        house.done("CREATE DATABASE hr", principal=ROOT)
        house.register("hr.people", folder)
        yield house


def rows(house: House, user: Principal) -> list[tuple[int, int | None]] | str:
    """Return what a user sees of the table; a text: nothing."""
    try:
        return [(row["id"], row["salary"]) for row in house.done(ROWS, principal=user)]
    except UnknownTable:
        return "no such table"


def test_each_user_sees_what_the_policy_says(house: House) -> None:
    assert rows(house, ANN) == [(1, None), (3, None)]
    assert rows(house, FINN) == [(1, None), (2, None), (3, None)]
    assert rows(house, EVE) == "no such table"
    assert rows(house, ROOT) == [(1, 10), (2, 20), (3, 30)]


def test_a_change_of_the_data_holds_soon(house: House, agent: PolicyAgent) -> None:
    assert rows(house, ANN) == [(1, None), (3, None)]
    agent.data = {"heads": {"ann": "it"}}
    wait_until(lambda: rows(house, ANN) == [(2, None)])


def test_grants_of_statements_count_besides(house: House) -> None:
    house.done("GRANT SELECT ON hr.people TO USER olga", principal=ROOT)
    assert rows(house, OLGA) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"delay_s": 3.0},
        {"token": "another"},
        {"body": b"{}"},
        {"body": b'{"result": []}'},
        {"body": b"[" * 100_000},
        {"body": b'{"result": {"clsoed": ["*"]}}'},
        {"body": b'{"result": {"filter": [{"on": "hr.people", "where": "1) OR (1"}]}}'},
        {"policy": "package fusion.other\n"},
    ],
    ids=str,
)
def test_without_an_answer_everything_closes_and_opens_again(
    house: House, agent: PolicyAgent, fault: dict[str, object]
) -> None:
    before = {name: getattr(agent, name) for name in fault}
    for name, value in fault.items():
        setattr(agent, name, value)
    assert rows(house, ANN) == [(1, None), (3, None)]
    wait_until(lambda: rows(house, ANN) == "no such table")
    assert rows(house, FINN) == "no such table"
    assert rows(house, ROOT) == [(1, 10), (2, 20), (3, 30)]
    for name, value in before.items():
        setattr(agent, name, value)
    wait_until(lambda: rows(house, ANN) == [(1, None), (3, None)])


def test_an_agent_that_comes_up_later_is_heard() -> None:
    with serving(PolicyAgent(HEADS)) as agent:
        pass
    service = PolicyService(OpaSettings(url=agent.url, refresh_s=0.1))
    try:
        assert service.current() is GONE
        with serving(agent):
            wait_until(lambda: service.current() is not GONE)
            first = service.current()
            questions = agent.questions
            wait_until(lambda: agent.questions > questions + 2)
            assert service.current() is first  # the same while the answer is the same: plans are kept by it
    finally:
        service.stop()


def test_the_agent_is_asked_no_more_after_the_end(agent: PolicyAgent) -> None:
    service = PolicyService(OpaSettings(url=agent.url, token=KEY, refresh_s=0.1))
    wait_until(lambda: agent.questions > 1)
    service.stop()
    time.sleep(0.3)  # the last question may be under way
    questions = agent.questions
    time.sleep(0.4)
    assert agent.questions == questions


def test_the_doctor_asks_it(tmp_path: Path, agent: PolicyAgent) -> None:
    def result() -> tuple[bool, str]:
        settings = load(tmp_path, access={"opa": {"url": agent.url, "token": KEY}})
        (result,) = (result for result in examine(settings) if result.subject == "Access policy")
        return result.good, result.detail

    assert result()[0] and "1 grants, 1 filters, 1 masks" in result()[1]
    agent.body = b"{}"
    assert not result()[0] and "is undefined" in result()[1]


def test_what_would_be_unsafe_is_refused() -> None:
    with pytest.raises(ValidationError, match="not https"):
        OpaSettings(url="http://opa.example:8181/v1/data/fusion/access")
    with pytest.raises(ValidationError, match="come from one of them"):
        AccessSettings(policy_file=Path("policy.toml"), opa=OpaSettings(url="http://127.0.0.1:8181/v1/data/a"))
