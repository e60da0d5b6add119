"""Who is let in, and how long sessions and what they hold stay."""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import adbc_driver_manager
import grpc
import pyarrow.flight as arrow_flight
import pytest

from engines.scripted import Script
from gateway.drivers.flight import messages, sessions
from gateway.drivers.flight.messages import OptionError
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    FlightDescriptor,
    FlightInfo,
    Result,
    SessionOptionValue,
    SetSessionOptionsRequest,
    SetSessionOptionsResult,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    CommandStatementQuery,
)
from gateway.drivers.flight.server import COOKIE
from gateway.drivers.flight.sessions import LARGEST_PREPARED, LARGEST_RESULTS
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.lockout import FREE_FAILURES
from gateway.settings import FlightSettings, ResultSettings, TlsSettings
from gateway.statements.session import LARGEST_BYTES, LONGEST_VALUE
from metastore.records import QueryState
from tests.gateway.conftest import hashing_held, stopped_planners
from tests.gateway.drivers.flight.conftest import Served, eventually
from tests.gateway.left_behind import nothing_left
from tests.gateway.scripted_gateway import PLAN, ROWS, SMALL, TOO_BIG

ADA = {"username": "ada", "password": "secret"}
WRONG = {"username": "ada", "password": "wrong"}
UNKNOWN = {"username": "eve", "password": "secret"}
SERVICE = "/arrow.flight.protocol.FlightService/"


@pytest.fixture
def guarded(serve: Callable[..., Served], tmp_path: Path) -> Served:
    """Serve a gateway that lets nobody in but two users."""
    users = tmp_path / "users"
    users.write_text(f"{user_line('ada', 'secret')}\n{user_line('bob', 'geheim')}\n", encoding="utf-8")
    return serve(authenticator=UsersFile(users, anonymous=Anonymous.NEVER))


def ask(served: Served, headers: list[tuple[str, str]], sql: str = SMALL) -> tuple[Any, dict[str, str]]:
    """Ask for a statement's FlightInfo; returns it with the headers of the reply."""
    with grpc.insecure_channel(served.server.address) as channel:
        command = messages.pack(CommandStatementQuery(query=sql))
        descriptor = FlightDescriptor(type=2, cmd=command).SerializeToString()
        reply, call = channel.unary_unary(f"{SERVICE}GetFlightInfo").with_call(descriptor, metadata=headers)
        return messages.read(FlightInfo, reply), dict(call.initial_metadata())


def code_of(served: Served, headers: list[tuple[str, str]], sql: str = SMALL) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        ask(served, headers, sql)
    code: grpc.StatusCode = caught.value.code()
    return code


def basic(name: str, password: str) -> tuple[str, str]:
    return "authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def test_a_login_is_needed_and_it_must_be_right(guarded: Served) -> None:
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="is wrong") as caught:
        guarded.connect(**WRONG)
    assert caught.value.status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="is wrong"):
        guarded.connect(**UNKNOWN)
    with closing(guarded.connect()) as connection, closing(connection.cursor()) as cursor:
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="are required"):
            cursor.execute(SMALL)


def test_statements_belong_to_the_user_who_logged_in(guarded: Served) -> None:
    with closing(guarded.connect(**ADA)) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute(SMALL)
            assert cursor.fetchall() == [(42,), (43,)]

    record, _described = guarded.gateway.metastore.queries.search(limit=5)
    assert record.user == "ada"


def test_a_bearer_token_is_what_a_handshake_gave(guarded: Served) -> None:
    with arrow_flight.connect(f"grpc://{guarded.server.address}") as client:
        _, token = client.authenticate_basic_token("bob", "geheim")
    with closing(guarded.connect(**{"adbc.flight.sql.authorization_header": token.decode()})) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute(SMALL)
            assert cursor.fetchall() == [(42,), (43,)]
    assert code_of(guarded, [("authorization", token.decode())]) is grpc.StatusCode.UNAUTHENTICATED  # it was closed
    assert code_of(guarded, [("authorization", "Bearer made-up")]) is grpc.StatusCode.UNAUTHENTICATED


def test_basic_authentication_does_without_a_handshake(guarded: Served) -> None:
    info, headers = ask(guarded, [basic("ada", "secret")])

    assert info.total_records == 2
    assert headers["authorization"].startswith("Bearer ")
    assert code_of(guarded, [basic("ada", "geheim")]) is grpc.StatusCode.UNAUTHENTICATED
    assert code_of(guarded, [("authorization", "Basic ???")]) is grpc.StatusCode.UNAUTHENTICATED


def test_what_belongs_to_one_user_is_not_there_for_another(guarded: Served) -> None:
    info, _ = ask(guarded, [basic("ada", "secret")])
    ticket = info.endpoint[0].ticket.SerializeToString()
    with grpc.insecure_channel(guarded.server.address) as channel:
        read = channel.unary_stream(f"{SERVICE}DoGet")
        with pytest.raises(grpc.RpcError) as caught:
            list(read(ticket, metadata=[basic("bob", "geheim")]))
        rows = list(read(ticket, metadata=[basic("ada", "secret")]))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "it belongs to another user" in caught.value.details()
    assert len(rows) > 1


def test_clients_on_this_machine_need_no_login_by_default(scripted: Served) -> None:
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(SMALL)

    assert scripted.gateway.metastore.queries.search(limit=1)[0].user == "anonymous"


def test_a_session_follows_its_token_or_its_cookie(scripted: Served) -> None:
    _, headers = ask(scripted, [], "SET fusion.dialect = impala")
    cookie = headers["set-cookie"].partition(";")[0]

    assert cookie.startswith(f"{COOKIE}=")
    for sent in [("authorization", headers["authorization"]), ("cookie", cookie)]:
        info, again = ask(scripted, [sent], "SET fusion.dialect")
        assert "authorization" not in again
        assert scripted.gateway.spool.page(query_of(scripted), max_rows=1).batches[0].column(1).to_pylist() == [
            "impala"
        ]
        assert info.total_records == 1
    _, headers = ask(scripted, [("cookie", f"{COOKIE}=made-up; x")])
    assert "authorization" in headers


def runs(served: Served) -> bool:
    return any(each.state is QueryState.RUNNING for each in served.gateway.metastore.queries.search(limit=5))


def query_of(served: Served) -> str:
    return served.gateway.metastore.queries.search(limit=1)[0].id


def test_a_session_that_is_idle_for_too_long_ends_with_its_results(serve: Callable[..., Served]) -> None:
    served = serve(flight=FlightSettings(port=0, idle_s=0.5, drain_s=0.1))
    info, headers = ask(served, [])
    assert len(served.gateway.spool.query_ids()) == 1
    token = ("authorization", headers["authorization"])
    assert info.total_records == 2

    give_up_s = time.monotonic() + 10
    while served.gateway.spool.query_ids():
        assert time.monotonic() < give_up_s, "the result is still there"
        time.sleep(0.05)

    assert code_of(served, [token]) is grpc.StatusCode.UNAUTHENTICATED


def test_sessions_are_limited_in_total_and_per_user(serve: Callable[..., Served]) -> None:
    served = serve(flight=FlightSettings(port=0, sessions=3, sessions_per_user=2, drain_s=0.1))

    def opened(user: str) -> list[tuple[str, str]]:
        headers = [("authorization", ask(served, [basic(user, "")])[1]["authorization"])]
        ask(served, headers)
        return headers

    first = opened("ada")
    opened("ada")
    third = [("authorization", ask(served, [basic("ada", "")])[1]["authorization"])]
    assert code_of(served, third) is grpc.StatusCode.RESOURCE_EXHAUSTED
    opened("bob")
    fourth = [("authorization", ask(served, [basic("eve", "")])[1]["authorization"])]
    assert code_of(served, fourth) is grpc.StatusCode.RESOURCE_EXHAUSTED
    with grpc.insecure_channel(served.server.address) as channel:
        close = Action(type="CloseSession").SerializeToString()
        list(channel.unary_stream(f"{SERVICE}DoAction")(close, metadata=first))
    ask(served, fourth)


def test_a_session_that_nobody_seems_to_use_gives_way(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.drivers.sessions.SPARE_S", 0.0)
    served = serve(flight=FlightSettings(port=0, sessions_per_user=2, drain_s=0.1))
    first, second, third = ([("authorization", ask(served, [basic("ada", "")])[1]["authorization"])] for _ in range(3))
    for token in (first, second, first):
        ask(served, token)
    ask(served, third)  # in the place of the second, which is silent for longest
    assert code_of(served, second) is grpc.StatusCode.UNAUTHENTICATED
    ask(served, first)


def test_clients_that_keep_no_token_leave_a_bounded_number_of_sessions(
    scripted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LARGEST_UNCLAIMED", 3)

    for _ in range(6):
        ask(scripted, [])

    assert len(scripted.gateway.spool.query_ids()) == 3


def test_a_session_holds_a_bounded_number_of_results(scripted: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LARGEST_RESULTS", 3)
    _, headers = ask(scripted, [])

    for _ in range(6):
        ask(scripted, [("authorization", headers["authorization"])])

    assert len(scripted.gateway.spool.query_ids()) == 3


def test_a_prepared_statement_stays_however_often_it_runs(scripted: Served) -> None:
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.adbc_prepare(SMALL)
        for _ in range(LARGEST_RESULTS + LARGEST_PREPARED // 8):
            cursor.execute(SMALL)
        assert cursor.fetchall() == [(42,), (43,)]
        assert len(scripted.gateway.spool.query_ids()) == LARGEST_RESULTS

        assert len(scripted.fast.asked) == 1 + LARGEST_RESULTS + LARGEST_PREPARED // 8


def test_the_prepared_statement_that_was_used_longest_ago_gives_way(
    scripted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LARGEST_PREPARED", 2)
    with closing(scripted.connect()) as connection, ExitStack() as stack:
        used, forgotten, newest = (stack.enter_context(closing(connection.cursor())) for _ in range(3))
        used.adbc_prepare(SMALL)
        forgotten.adbc_prepare(TOO_BIG)
        used.execute(SMALL)
        newest.adbc_prepare("SELECT 'newest' AS answer")

        used.execute(SMALL)
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="There is no such prepared statement"):
            forgotten.execute(TOO_BIG)
        newest.execute("SELECT 'newest' AS answer")


def test_what_a_preparation_brought_may_have_given_way(scripted: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LARGEST_RESULTS", 1)
    with closing(scripted.connect()) as connection, ExitStack() as stack:
        one, other = (stack.enter_context(closing(connection.cursor())) for _ in range(2))
        one.adbc_prepare(SMALL)
        other.adbc_prepare(SMALL)

        one.execute(SMALL)
        assert one.fetchall() == [(42,), (43,)]


def test_a_session_holds_a_bounded_size_of_settings(scripted: Served) -> None:
    _, headers = ask(scripted, [])
    value = SessionOptionValue(string_value="x" * (LONGEST_VALUE // 2))
    refused: dict[str, int] = {}
    with grpc.insecure_channel(scripted.server.address) as channel:
        for first in range(0, 2 * LARGEST_BYTES // LONGEST_VALUE, 10):
            options = {f"option {number}": value for number in range(first, first + 10)}
            body = SetSessionOptionsRequest(session_options=options).SerializeToString()
            action = Action(type="SetSessionOptions", body=body).SerializeToString()
            call = channel.unary_stream(f"{SERVICE}DoAction")
            (reply,) = call(action, metadata=[("authorization", headers["authorization"])])
            result = messages.read(SetSessionOptionsResult, messages.read(Result, reply).body)
            refused |= {name: error.value for name, error in result.errors.items()}

    assert 0 < len(refused) <= 10
    assert set(refused.values()) == {OptionError.ERROR}


def test_a_statement_that_runs_gives_way_to_no_other(scripted: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LARGEST_RESULTS", 2)
    begin = threading.Event()
    scripted.fast.script("slow", Script(steps=(begin, ROWS), plan=PLAN))
    with closing(scripted.connect()) as connection, ExitStack() as stack:
        slow, quick, third = (stack.enter_context(closing(connection.cursor())) for _ in range(3))
        waiting = stack.enter_context(ThreadPoolExecutor(2)).submit(slow.execute, "SELECT 'slow' AS answer")
        stack.callback(begin.set)
        eventually(lambda: runs(scripted), "it does not begin")
        for _ in range(5):
            quick.execute(SMALL)
        begin.set()
        waiting.result()
        third.execute(SMALL)

        assert slow.fetchall() == [(42,), (43,)]


def test_a_session_holds_a_bounded_size_of_results(serve: Callable[..., Served]) -> None:
    served = serve(results=ResultSettings(bytes=2_000))
    _, headers = ask(served, [])
    token = ("authorization", headers["authorization"])
    size = served.gateway.metastore.queries.search(limit=1)[0].result_bytes
    assert size is not None

    for _ in range(2 * 2_000 // size):
        ask(served, [token])

    kept = served.gateway.spool.query_ids()
    assert 1 <= len(kept) <= 2_000 // size + 1
    assert query_of(served) in kept


def test_what_was_read_goes_with_its_prepared_statement(scripted: Served) -> None:
    with closing(scripted.connect()) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute(SMALL)
            cursor.fetchall()
        assert scripted.gateway.spool.query_ids() == frozenset()

        with closing(connection.cursor()) as cursor:
            partitions, _ = cursor.adbc_execute_partitions(SMALL)
        with closing(connection.cursor()) as reader:
            reader.adbc_read_partition(partitions[0])
            assert reader.fetchall() == [(42,), (43,)]


def test_a_user_of_many_sessions_ends_those_that_nobody_waits_for_and_no_other_users(
    scripted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LARGEST_UNCLAIMED", 4)
    begin = threading.Event()
    scripted.fast.script("slow", Script(steps=(begin, ROWS), plan=PLAN))
    info, _ = ask(scripted, [basic("ada", "")])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, scripted, [basic("eve", "")], "SELECT 'slow' AS answer")
        try:
            eventually(lambda: runs(scripted), "it does not begin")
            for _ in range(8):
                ask(scripted, [basic("eve", "")])
            # ada's and eve's last two; hers that is being written has no file yet
            assert len(scripted.gateway.spool.query_ids()) == 3
        finally:
            begin.set()
        assert waiting.result()[0].total_records == 2
    with grpc.insecure_channel(scripted.server.address) as channel:
        ticket = info.endpoint[0].ticket.SerializeToString()
        assert list(channel.unary_stream(f"{SERVICE}DoGet")(ticket, metadata=[basic("ada", "")]))


def test_a_client_that_leaves_while_its_statement_is_read(scripted: Served) -> None:
    command = messages.pack(CommandStatementQuery(query="SELECT 'small' AS unread"))
    descriptor = FlightDescriptor(type=2, cmd=command).SerializeToString()
    queries = scripted.gateway.metastore.queries
    with stopped_planners(scripted.gateway), grpc.insecure_channel(scripted.server.address) as channel:
        call = channel.unary_unary(f"{SERVICE}GetFlightInfo").future(descriptor, metadata=[basic("ada", "")])
        eventually(lambda: bool(queries.search(limit=1)), "it is not on record")
        call.cancel()
        eventually(lambda: queries.search(limit=1)[0].state is QueryState.CANCELLED, "it is read on")


def test_one_user_holds_a_part_of_the_calls(serve: Callable[..., Served]) -> None:
    served = serve(flight=FlightSettings(port=0, calls=8, drain_s=0.1))
    begin = threading.Event()
    served.fast.script("slow", Script(steps=(begin, ROWS), plan=PLAN))
    slow = "SELECT 'slow' AS answer"
    with grpc.insecure_channel(served.server.address) as channel, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, served, [basic("ada", "")], slow) for _ in range(4)]
        try:
            eventually(lambda: len(served.gateway.metastore.queries.search(limit=9)) == 4, "they do not begin")
            eventually(lambda: code_of_call(served, "ada") is grpc.StatusCode.RESOURCE_EXHAUSTED, "no call is refused")
            assert list(channel.unary_stream(f"{SERVICE}ListActions")(b"", metadata=[basic("bob", "")]))
            options = Action(type="GetSessionOptions").SerializeToString()
            assert list(channel.unary_stream(f"{SERVICE}DoAction")(options, metadata=[basic("ada", "")]))
        finally:
            begin.set()
        assert all(each.result()[0].total_records == 2 for each in waiting)
        eventually(lambda: code_of_call(served, "ada") is None, "calls that ended count")


def code_of_call(served: Served, user: str) -> grpc.StatusCode | None:
    """Return how a statement of a user is refused, None where it is not."""
    try:
        ask(served, [basic(user, "")])
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def test_wrong_logins_hold_no_calls(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = FREE_FAILURES + 10
    _, headers = ask(guarded, [basic("ada", "secret")])
    with ThreadPoolExecutor(asked) as pool, hashing_held(monkeypatch):
        flood = [pool.submit(code_of, guarded, [basic("ada", f"wrong {number}")]) for number in range(asked)]
        eventually(lambda: sum(each.done() for each in flood) == asked - FREE_FAILURES, "they wait for each other")

        assert ask(guarded, [("authorization", headers["authorization"])])[0].total_records == 2
        assert ask(guarded, [basic("ada", "secret")])[0].total_records == 2
    assert {each.result() for each in flood} == {grpc.StatusCode.UNAUTHENTICATED}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH to make a certificate with")
@pytest.mark.parametrize("one_file", [False, True])
def test_with_a_certificate_the_port_is_encrypted(serve: Callable[..., Served], tmp_path: Path, one_file: bool) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    trusted = certificate.read_text()
    if one_file:
        certificate.write_text(key.read_text() + trusted)
    served = serve(tls=TlsSettings(certificate=certificate, key=None if one_file else key))
    options = {"adbc.flight.sql.client_option.tls_root_certs": trusted}

    with closing(served.connect("grpc+tls", **options)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(SMALL)
        assert cursor.fetchall() == [(42,), (43,)]
    with pytest.raises(grpc.RpcError):
        ask(served, [])


def test_of_a_closed_session_no_statement_is_left(duckdb: Served) -> None:
    with nothing_left(), closing(duckdb.connect()) as connection, closing(connection.cursor()) as cursor:
        for _ in range(2):
            cursor.execute("SELECT isbn FROM books WHERE id = 4")
            assert len(cursor.fetchall()) == 1
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("SELECT nothing FROM books")
