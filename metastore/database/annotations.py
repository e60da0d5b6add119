"""What people say of a table or view, as it lies in the database: JSON with what is said, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore.records import Annotations


def encode_annotations(told: Annotations) -> dict[str, Any]:
    """Return what is said as it is stored."""
    parts = {"comment": told.comment, "properties": dict(told.properties), "columns": dict(told.columns)}
    return {name: part for name, part in parts.items() if part}


def decode_annotations(stored: Mapping[str, Any]) -> Annotations:
    """Return what was stored by ``encode_annotations``."""
    return Annotations(stored.get("comment", ""), dict(stored.get("properties", {})), dict(stored.get("columns", {})))
