"""What /openapi.json says of replies, and what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.errors import ERRORS
from gateway.http.errors import status_of

OF_NO_ROUTE = {405, 415}  # of an address that has no such route, and of Thrift's own, which describes itself
ERROR = {"$ref": "#/components/schemas/ErrorReply"}
QUERY = {"$ref": "#/components/schemas/QueryReply"}


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    """Return the description."""
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def routes(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield method, path, route


def test_every_error_has_the_one_shape(document: dict[str, Any]) -> None:
    for method, path, route in routes(document):
        for status, reply in route["responses"].items():
            if int(status) >= 400:
                schema = reply["content"]["application/json"]["schema"]
                shapes = schema.get("anyOf", [schema])
                assert ERROR in shapes, (method, path, status)
                assert all("error" in shape_of(document, each) for each in shapes if each in (ERROR, QUERY))
    assert not [name for name in document["components"]["schemas"] if "Validation" in name]


def shape_of(document: dict[str, Any], reference: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = document["components"]["schemas"][reference["$ref"].rpartition("/")[2]]["properties"]
    return fields


def test_every_status_of_an_error_is_declared_somewhere(document: dict[str, Any]) -> None:
    declared = {int(status) for _, _, route in routes(document) for status in route["responses"]}
    assert {status_of(code) for code in ERRORS} - OF_NO_ROUTE <= declared


def test_the_login_is_declared(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert {name: scheme["scheme"] for name, scheme in schemes.items()} == {"login": "basic"}
    for _, path, route in routes(document):
        assert ("security" in route) is path.startswith("/v1/"), path


def test_routes_have_names_for_programs(document: dict[str, Any]) -> None:
    names = [route["operationId"] for _, _, route in routes(document)]
    assert {"run_query", "get_result", "list_tables"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("format", ["json", "csv", "arrow"])
def test_downloads_are_of_a_type_that_is_declared(client: httpx.Client, document: dict[str, Any], format: str) -> None:
    asked = client.post("/v1/queries", json={"sql": "SELECT 1 AS one", "max_rows": 0}).json()["id"]
    reply = client.get(f"/v1/queries/{asked}/result", params={"format": format})
    declared = document["paths"]["/v1/queries/{query_id}/result"]["get"]["responses"]["200"]["content"]
    assert reply.headers["content-type"].partition(";")[0] in declared
