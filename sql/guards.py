"""Guards that writers put into a statement where a value has to end it, and the engine's error text then."""

from __future__ import annotations

RAISE = "raise_error"
"""Spark's function that ends a statement; no client's statement may call it."""

FENCE = "fusion_fence"
"""Condition that always holds, past which engines move no other one; no client's statement may call it.

With an argument, the statement has a constant that may fail: an engine that looks at bounds of hidden rows, and then at
no row, would tell of them.
"""

MASKED = "masked"
"""Key of the ``meta`` of an output that is a mask; its alias is the column that it masks."""

OTHER_MEANING = "meant otherwise by Spark: "
"""Start of an engine's error where a guard of ours ended the statement because of a value."""

DIVISION_BY_ZERO = "division by zero"
"""Rest of that error where the value is a divisor: an error of Spark, too."""
