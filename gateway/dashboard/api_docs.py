"""The interface as a page: routes and fields from the OpenAPI document, without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A parameter or a field of a body. kind: its type in words."""

    name: str
    kind: str
    needed: bool
    text: str


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One route. takes: its parameters, then the fields of its body; returns: the fields of its reply."""

    method: str
    path: str
    text: str
    takes: tuple[FieldLine, ...]
    returns: tuple[FieldLine, ...]


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes about one subject."""

    name: str
    routes: tuple[RouteEntry, ...]


def groups(document: Mapping[str, Any]) -> list[RouteGroup]:
    """Return the routes of an OpenAPI document by their first tag, in its order."""
    found: dict[str, list[RouteEntry]] = {}
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["other"])[0]
                found.setdefault(tag, []).append(_entry(document, method, path, methods[method]))
    return [RouteGroup(name, tuple(routes)) for name, routes in found.items()]


def _entry(document: Mapping[str, Any], method: str, path: str, route: Mapping[str, Any]) -> RouteEntry:
    parameters = tuple(
        FieldLine(each["name"], _kind(each["schema"]), each.get("required", False), each.get("description", ""))
        for each in route.get("parameters", ())
    )
    body = _schema_of(route.get("requestBody", {}))
    good: Mapping[str, Any] = next((reply for code, reply in route["responses"].items() if code.startswith("2")), {})
    return RouteEntry(
        method=method.upper(),
        path=path,
        text=route.get("description") or route.get("summary", ""),
        takes=parameters + tuple(_fields(document, body)),
        returns=tuple(_fields(document, _schema_of(good))),
    )


def _schema_of(content: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = content.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[FieldLine]:
    model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    needed = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        yield FieldLine(name, _kind(field), name in needed, field.get("description", ""))


def _kind(schema: Mapping[str, Any]) -> str:
    """Say a type in words: ``integer or null``, ``list of QueryReply``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    return f"list of {_kind(schema.get('items', {}))}" if kind == "array" else kind
