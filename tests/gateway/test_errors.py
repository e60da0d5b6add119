"""Every error has a code, a kind and an SQLSTATE, and every door answers it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import grpc
import pytest

from engines.errors import EngineBusy, EngineError, EngineUnavailable, StatementError
from gateway.drivers.flight import errors as flight
from gateway.drivers.hs2.errors import status_of as hs2_status_of
from gateway.drivers.hs2.protocol.messages import StatusCode
from gateway.errors import ERRORS, NoEngineAvailable, QueryFailed, ResultGone
from gateway.failures import failure_of
from gateway.http import errors as http
from selector.decision import NoEngine
from sql.errors import ErrorKind, Failure, FusionError, NotAllowed, SqlError, UnknownTable

GROUPS = frozenset({"CommandFailed", "RequestError", "ResultError", "SessionError", "SqlError", "Unavailable"})
"""Bases without a code; nobody raises them."""


def below(root: type[FusionError]) -> Iterator[type[FusionError]]:
    for error in root.__subclasses__():
        yield error
        yield from below(error)


CLASSES = [
    error for error in below(FusionError) if error.__name__ not in {*GROUPS, "EngineError"} and error is not QueryFailed
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_has_a_code_a_kind_and_an_sqlstate(error: type[FusionError]) -> None:
    assert re.fullmatch("[A-Z_]+", error.code)
    assert isinstance(error.kind, ErrorKind)
    assert re.fullmatch("[0-9A-Z]{5}", error.sqlstate)


def test_no_group_is_an_error_by_itself() -> None:
    by_name = {error.__name__: error for error in below(FusionError)}
    assert all("code" not in vars(by_name[name]) and by_name[name].__subclasses__() for name in GROUPS)


def test_errors_of_one_code_have_one_kind_and_one_sqlstate() -> None:
    for error in CLASSES:
        assert (error.kind, error.sqlstate) == (ERRORS[error.code].kind, ERRORS[error.code].sqlstate), error


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_door_answers_every_error(code: str) -> None:
    assert http.status_of(code) in range(400, 600)
    assert http.status_of_failed_query(code) in {200, *http.STATUSES_OF_FAILED_QUERIES}
    assert flight.status_of(code) not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN)
    status = hs2_status_of(QueryFailed(Failure(code, "why")))
    assert (status.code, status.sqlstate, status.message) == (
        StatusCode.ERROR,
        ERRORS[code].sqlstate,
        "why",
    )


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_is_of_some_error(kind: ErrorKind) -> None:
    assert any(error.kind is kind for error in CLASSES)


def test_an_error_that_is_not_known_here_is_a_fault() -> None:
    """Records keep codes of earlier releases, and engines of other packages may have codes of their own."""
    assert (http.status_of("BROKEN_OFF"), http.status_of_failed_query("BROKEN_OFF")) == (500, 200)
    assert flight.status_of("BROKEN_OFF") is grpc.StatusCode.INTERNAL


def test_a_name_in_a_statement_is_no_address_of_a_request() -> None:
    assert UnknownTable.kind is ResultGone.kind is ErrorKind.NOT_FOUND
    assert (http.status_of(UnknownTable.code), http.status_of(ResultGone.code)) == (400, 410)


def test_a_failed_query_is_a_200_unless_the_statement_or_the_moment_was_the_reason() -> None:
    of_failed = http.status_of_failed_query
    assert (of_failed(StatementError.code), of_failed(NotAllowed.code), of_failed(EngineBusy.code)) == (400, 403, 503)
    assert of_failed(EngineUnavailable.code) == 200  # it may have run there, and must not be sent again unseen


def test_what_has_no_code_of_its_own_gets_one() -> None:
    assert failure_of(NoEngine(())) == NoEngineAvailable("No engine can take it: no engine is configured").failure


def test_engines_errors_are_no_refusals() -> None:
    assert not any(issubclass(error, SqlError) for error in below(EngineError))
