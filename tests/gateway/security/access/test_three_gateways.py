"""Rights on three gateways of one PostgreSQL: what is taken away on one of them is gone from all at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from gateway.security.authentication import user_line
from gateway.security.principals import Role
from tests.gateway.server.test_any_gateway import Served, register_numbers
from tests.postgresql import postgresql

pytestmark = pytest.mark.e2e

COUNT = "SELECT count(*) AS n FROM n WHERE i < 10"
POLICY = "[[filter]]\non = 'n'\nwhere = 'i >= {first}'\nto = 'ann'\n"


@pytest.fixture
def gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Served]]:
    """Serve three gateways with the users root and ann and one policy file; nobody reads anything without a grant."""
    users, policy = tmp_path / "users", tmp_path / "policy.toml"
    users.write_text(f"{user_line('root', 'r', Role.ADMIN)}\n{user_line('ann', 'a', Role.READER)}\n")
    users.chmod(0o600)
    policy.write_text(POLICY.format(first=3))
    monkeypatch.setenv("FUSION_AUTHENTICATION__USERS_FILE", str(users))
    monkeypatch.setenv("FUSION_AUTHENTICATION__ANONYMOUS_ROLE", "admin")  # for the test's own preparations
    monkeypatch.setenv("FUSION_CATALOG__ROOTS", f'["{tmp_path}"]')
    monkeypatch.setenv("FUSION_ACCESS__POLICY_FILE", str(policy))
    monkeypatch.setenv("FUSION_ACCESS__CLOSED", '["*"]')
    with postgresql() as server, ExitStack() as stack:
        served: list[Served] = []
        for number in range(3):
            served.append(Served(tmp_path / f"home{number}", server.url))
            stack.callback(served[-1].kill)
        register_numbers(served[0], tmp_path / "n")
        yield served


def outcome(gateway: Served, sql: str, user: str = "ann") -> object:
    """Return the first value of a statement's rows, its error's code, or the status of a login that is refused."""
    with closing(httpx.Client(base_url=gateway.http.base_url, auth=(user, user[0]), timeout=60)) as client:
        reply = client.post("/v1/queries", json={"sql": sql})
    if reply.status_code == 401:
        return 401
    answer = reply.json()
    if answer.get("error"):
        return answer["error"]["code"]
    return answer["rows"][0][0] if answer.get("rows") else None


def test_the_next_statement_on_any_of_them_obeys(gateways: list[Served], tmp_path: Path) -> None:
    one, other, third = gateways

    def everywhere() -> set[object]:
        return {outcome(gateway, COUNT) for gateway in (third, other, one)}

    assert everywhere() == {"UNKNOWN_TABLE"}
    assert outcome(one, "CREATE ROLE readers", "root") is None
    assert outcome(other, "GRANT SELECT ON n TO ROLE readers", "root") is None
    assert outcome(third, "GRANT readers TO ann", "root") is None
    assert everywhere() == {7}
    (tmp_path / "policy.toml").write_text(POLICY.format(first=5))
    os.utime(tmp_path / "policy.toml")
    assert everywhere() == {5}
    assert outcome(one, "REVOKE readers FROM ann", "root") is None
    assert everywhere() == {"UNKNOWN_TABLE"}
    assert outcome(other, "GRANT SELECT ON n TO ann", "root") is None
    assert everywhere() == {5}
    users = tmp_path / "users"
    users.write_text(f"{user_line('root', 'r', Role.ADMIN)}\n{user_line('ann', 'changed', Role.READER)}\n")
    assert everywhere() == {401}
