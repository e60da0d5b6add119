"""Compare values that hold arrays, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np


def assert_same(a: object, b: object) -> None:
    """Fail unless two values are equal in every field, types and array types included."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        assert list(a) == list(b)
        for name in a:
            assert_same(a[name], b[name])
    elif is_dataclass(a) and is_dataclass(b):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    else:
        assert a == b
