"""Description of the HTTP interface as a page, from the OpenAPI document, without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")


def groups(document: Mapping[str, Any]) -> dict[str, list[tuple[str, str, Mapping[str, Any]]]]:
    """Return method, path and description of all routes by their first tag, in the document's order."""
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append((method.upper(), path, methods[method]))
    return by_tag


def inputs(document: Mapping[str, Any], route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of a route's parameters and of the fields of its body."""
    for parameter in route.get("parameters", ()):
        yield _line(parameter, parameter["schema"], parameter["name"], needed=parameter.get("required", False))
    yield from _fields(document, route.get("requestBody", {}))


def outputs(document: Mapping[str, Any], route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of the fields of a route's reply."""
    replies = route["responses"].items()
    yield from _fields(document, next((reply for status, reply in replies if status.startswith("2")), {}))


def _fields(document: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    schema = content.get("content", {}).get("application/json", {}).get("schema", {})
    model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for name, field in model.get("properties", {}).items():
        yield _line(field, field, name, needed=name in model.get("required", ()))


def _line(described: Mapping[str, Any], schema: Mapping[str, Any], name: str, *, needed: bool) -> tuple[str, str, str]:
    return name, _kind(schema) + (", needed" if needed else ""), described.get("description", "")


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a type in words: ``integer or null``, ``list of QueryReply``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    return f"list of {_kind(schema.get('items', {}))}" if kind == "array" else kind
