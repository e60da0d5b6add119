"""Functions of Hive and Impala that are templates of Spark's SQL, and those that are refused by name.

In a template, a, b, c are the function's arguments in their order.
"""

from __future__ import annotations

from collections.abc import Mapping

from selector.types import BITS
from sql.dialects.names import HIVE, IMPALA

_BITS = "has another width for each type; write the number with & | ^ or multiply by powers of 2"
REFUSED: Mapping[str, Mapping[str, str]] = {
    IMPALA: {
        **dict.fromkeys("shiftleft shiftright rotateleft rotateright setbit countset".split(), _BITS),
        "typeof": "names Impala's types, which are narrower than Spark's",
        **dict.fromkeys(("precision", "scale"), "depends on Impala's decimals; Spark's follow other rules"),
        **dict.fromkeys(("nanoseconds_add", "nanoseconds_sub"), "is finer than timestamps here, with microseconds"),
        **dict.fromkeys(("fnv_hash", "murmur_hash"), "has no equivalent in Spark"),
    },
    HIVE: {"hash": "gives other values in Spark, by which the gateway computes"},
}
LN = "CASE WHEN a > 0 THEN {0}(a) WHEN a = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN a < 0 THEN CAST('NaN' AS DOUBLE) END"
TEMPLATES: Mapping[str, Mapping[tuple[str, int | None], str]] = {
    IMPALA: {
        ("dayname", 1): "date_format(a, 'EEEE')",
        ("monthname", 1): "date_format(a, 'MMMM')",
        ("millisecond", 1): "CAST(date_format(a, 'SSS') AS INT)",
        ("week", 1): "weekofyear(a)",
        ("months_between", 2): "months_between(CAST(a AS DATE), CAST(b AS DATE), FALSE)",
        ("int_months_between", 2): "CAST(months_between(CAST(a AS DATE), CAST(b AS DATE), FALSE) AS INT)",
        ("utc_timestamp", 0): "current_timestamp()",
        ("utc_to_unix_micros", 1): "unix_micros(CAST(a AS TIMESTAMP))",
        **{
            (f"{kind}_cmp", 2): "CASE WHEN a < b THEN -1 WHEN a > b THEN 1 WHEN a = b THEN 0 END"
            for kind in ("date", "timestamp")
        },
        ("isnull", 2): "ifnull(a, b)",
        ("nullvalue", 1): "a IS NULL",
        ("nonnullvalue", 1): "a IS NOT NULL",
        ("istrue", 1): "a <=> TRUE",
        ("isfalse", 1): "a <=> FALSE",
        ("isnottrue", 1): "NOT (a <=> TRUE)",
        ("isnotfalse", 1): "NOT (a <=> FALSE)",
        ("is_nan", 1): "coalesce(isnan(a), FALSE)",
        ("is_inf", 1): "coalesce(abs(a) = CAST('Infinity' AS DOUBLE), FALSE)",
        ("bitand", 2): "a & b",
        ("bitor", 2): "a | b",
        ("bitxor", 2): "a ^ b",
        ("bitnot", 1): "~a",
        ("fmod", 2): "a % b",
        ("quotient", 2): "CAST(a AS BIGINT) DIV CAST(b AS BIGINT)",
        **{(name, 2): "power(a, b)" for name in ("dpow", "fpow")},
        ("e", 0): "exp(1)",
        ("dexp", 1): "exp(a)",
        ("dsqrt", 1): "sqrt(a)",
        ("dceil", 1): "ceil(a)",
        ("dfloor", 1): "floor(a)",
        ("dround", 1): "round(a)",
        ("dround", 2): "round(a, b)",
        **{(name, 1): LN.format("ln") for name in ("ln", "dlog1")},
        **{(name, 1): LN.format("log10") for name in ("log10", "dlog10")},
        ("log2", 1): LN.format("log2"),
        **{(f"max_{name}", 0): f"CAST({2 ** (bits - 1) - 1} AS {name.upper()})" for name, bits in BITS.items()},
        **{(f"min_{name}", 0): f"CAST('-{2 ** (bits - 1)}' AS {name.upper()})" for name, bits in BITS.items()},
        ("base64encode", 1): r"replace(base64(CAST(a AS BINARY)), '\r\n', '')",
        ("base64decode", 1): "CASE WHEN a RLIKE '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$' "
        "THEN CAST(unbase64(a) AS STRING) END",
        ("bytes", 1): "octet_length(a)",
        ("strleft", 2): "left(a, b)",
        ("strright", 2): "right(a, b)",
        ("unhex", 1): "CASE WHEN a RLIKE '^([0-9A-Fa-f][0-9A-Fa-f])*$' THEN CAST(unhex(a) AS STRING) "
        "WHEN a IS NOT NULL THEN '' END",
        **{(f"{name}_utf8", 1): f"{name}(a)" for name in ("upper", "ucase")},
        ("utf8_length", 1): "length(a)",
        ("utf8_reverse", 1): "reverse(a)",
        **{(f"utf8_{name}", 1): f"{name}(a)" for name in ("trim", "ltrim", "rtrim", "btrim")},
        ("ndv", 1): "approx_count_distinct(a)",
        ("ndv", 2): "approx_count_distinct(a)",  # the scale of its memory
        ("appx_median", 1): "percentile_approx(a, 0.5)",
        ("variance_pop", 1): "var_pop(a)",
        ("variance_samp", 1): "var_samp(a)",
        ("le_dst", 2): "levenshtein(a, b)",
    },
    HIVE: {
        **{(name, 1): "stddev_pop(a)" for name in ("stddev", "std")},
        ("variance", 1): "var_pop(a)",
        ("size", 1): "coalesce(size(a), -1)",
        ("e", 0): "exp(1)",
        ("base64", 1): r"replace(base64(a), '\r\n', '')",
    },
}
