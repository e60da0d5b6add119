"""Comments and properties of a table or view as JSON; empty ones are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sql.tables import Annotations


def encode_annotations(annotations: Annotations) -> dict[str, Any]:
    """Return annotations as they are stored."""
    parts = {
        "comment": annotations.comment,
        "properties": dict(annotations.properties),
        "columns": dict(annotations.columns),
    }
    return {name: part for name, part in parts.items() if part}


def decode_annotations(stored: Mapping[str, Any]) -> Annotations:
    """Return annotations that ``encode_annotations`` encoded."""
    return Annotations(stored.get("comment", ""), dict(stored.get("properties", {})), dict(stored.get("columns", {})))
