"""Every text, list and map that a client can send has a limit: all request models are walked, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from gateway.http import catalog, queries, schedules, statistics
from gateway.http.models.queries import QueryRequest
from gateway.http.models.statistics import WorkloadRequest
from gateway.http.models.tables import TableRequest
from gateway.http.requests.bodies import parsed
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing import replay, rules
from sql.bounds import MOST_COLUMNS, MOST_SETTINGS

ROUTERS = (catalog.router, queries.router, schedules.router, statistics.router, replay.router, rules.router)
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
MODELS = {route.body_field.field_info.annotation for route in ROUTES if route.body_field is not None}


def unbounded(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the places of a JSON schema at which a value may be as large as somebody likes."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for number, part in enumerate((*schema.get("anyOf", ()), *schema.get("allOf", ()))):
        yield from unbounded(part, definitions, f"{path}|{number}")
    kind = schema.get("type")
    if kind == "string" and not {"maxLength", "enum", "const"} & schema.keys() and schema.get("format") != "date-time":
        yield path
    if kind == "array":
        if "maxItems" not in schema:
            yield path
        yield from unbounded(schema["items"], definitions, f"{path}[]")
    if kind == "object":
        for name, field in schema.get("properties", {}).items():
            yield from unbounded(field, definitions, f"{path}.{name}")
        values = schema.get("additionalProperties")
        if values not in (None, False):
            names = schema.get("propertyNames", {})
            if "maxProperties" not in schema or "maxLength" not in names:
                yield path
            yield from unbounded(values, definitions, f"{path}[key]")
    if kind is None and not {"$ref", "anyOf", "allOf", "enum", "const"} & schema.keys():
        yield path


@pytest.mark.parametrize("model", sorted(MODELS, key=str), ids=lambda model: model.__name__)
def test_every_field_has_a_limit(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    assert list(unbounded(schema, schema.get("$defs", {}), model.__name__)) == []


def test_the_walk_finds_what_has_none() -> None:
    class Open(BaseModel):
        texts: list[str]
        values: dict[str, int]
        either: str | None

    schema = Open.model_json_schema()
    assert set(unbounded(schema, {}, "Open")) == {"Open.texts", "Open.texts[]", "Open.values", "Open.either|0"}


def test_every_route_is_bounded() -> None:
    assert len(MODELS) >= 8
    assert [route.path for route in ROUTES if not isinstance(route, BoundedRoute)] == []


def body_of(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("model", "body", "place"),
    [
        (QueryRequest, body_of(sql="SELECT 1", settings={f"s{n}": "" for n in range(MOST_SETTINGS + 1)}), "settings"),
        (QueryRequest, body_of(sql="SELECT 1", settings={f"s{n}": 1 for n in range(100_000)}), "settings"),
        (QueryRequest, body_of(sql="SELECT 1", **{f"f{n}": 1 for n in range(100_000)}), "body"),
        (TableRequest, body_of(name="t", location="/t", columns=[{"a": 1}] * 100_000), "columns.0"),
        (TableRequest, body_of(name="t", location="/t", columns=[{f"f{n}": 1 for n in range(100_000)}]), "columns.0"),
        (TableRequest, body_of(name="t", location="/t", keys=[1] * 100_000), "keys.0"),
        (WorkloadRequest, body_of(statements=[1] * 100_000), "statements.0"),
        (QueryRequest, b"[" * 100_000, "body"),
    ],
)
def test_the_first_of_many_errors_is_told(model: type[BaseModel], body: bytes, place: str) -> None:
    told = parsed(model, body)
    assert isinstance(told, str)
    assert told.startswith(place)
    assert len(told) < 500


def test_as_many_as_are_allowed_are_taken() -> None:
    columns = [{"name": f"c{n}", "type": "int"} for n in range(MOST_COLUMNS)]
    taken = parsed(TableRequest, body_of(name="t", location="/t", columns=columns))
    assert isinstance(taken, TableRequest)
    settings = {f"s{n}": "" for n in range(MOST_SETTINGS)}
    assert isinstance(parsed(QueryRequest, body_of(sql="SELECT 1", settings=settings)), QueryRequest)


@pytest.mark.parametrize("database", ["default", "Lake.sales", "l1.2024"])
def test_a_database_may_be_one_of_a_catalog(database: str) -> None:
    assert QueryRequest(sql="SELECT 1", database=database).database == database


@pytest.mark.parametrize("database", ["", ".sales", "lake.", "a.b.c", "1lake.sales", "lake.sales "])
def test_other_names_of_databases_are_refused(database: str) -> None:
    with pytest.raises(ValidationError, match="database"):
        QueryRequest(sql="SELECT 1", database=database)
