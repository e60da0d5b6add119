"""Regular expressions of clients, run by RE2, which Arrow brings along: in linear time, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def search(expression: str, texts: Sequence[str], ignore_case: bool) -> Sequence[bool] | None:
    """Tell in which texts an expression is found; None where RE2 does not know its form."""
    try:
        is_match = pc.match_substring_regex(pa.array(texts, pa.string()), expression, ignore_case=ignore_case)
    except pa.ArrowInvalid:
        return None
    answers: list[bool] = is_match.to_pylist()
    return answers
