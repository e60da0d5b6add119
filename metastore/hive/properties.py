"""Properties of tables that are longer than a Hive Metastore takes, and how Spark cuts them."""

from __future__ import annotations

from collections.abc import Mapping

LONGEST_PROPERTY = 4_000


def join_property(parameters: Mapping[str, str], key: str) -> str | None:
    """Read a property that may have been cut; None if it is not there. Raises ValueError if a part is missing."""
    if key in parameters or f"{key}.numParts" not in parameters:
        return parameters.get(key)
    try:
        return "".join(parameters[f"{key}.part.{part}"] for part in range(int(parameters[f"{key}.numParts"])))
    except KeyError as failure:
        raise ValueError(f"{failure.args[0]} is missing") from failure


def cut_property(key: str, value: str) -> dict[str, str]:
    """Write a property, cut if it is long."""
    if len(value) <= LONGEST_PROPERTY:
        return {key: value}
    parts = [value[start : start + LONGEST_PROPERTY] for start in range(0, len(value), LONGEST_PROPERTY)]
    return {f"{key}.numParts": str(len(parts)), **{f"{key}.part.{n}": part for n, part in enumerate(parts)}}
