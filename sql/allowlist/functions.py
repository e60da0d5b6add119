"""START HERE: every function of Spark, allowed or refused.

This is the only list: the allow-list, cached results, table functions and ``docs/functions.md`` follow from it. A test
compares it with a real Spark, so that functions of a new release are noticed.

Refused are functions that read files, reach the network, call into the engine's process or tell about the server.
"""

from __future__ import annotations

from collections.abc import Mapping

_REPEATABLE = frozenset(
    """
    abs acos acosh add_months aggregate any approx_count_distinct approx_percentile array array_compact
    array_contains array_distinct array_except array_intersect array_join array_max array_min array_position
    array_remove array_size array_sort array_union arrays_overlap ascii asin asinh atan atan2 atanh avg base64
    bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bool_and bool_or boolean bround btrim
    cardinality cbrt ceil ceiling char char_length character_length chr coalesce concat concat_ws contains conv corr
    cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear decimal decode degrees dense_rank div double element_at elt encode endswith equal_null every exists
    exp explode explode_outer expm1 extract factorial filter find_in_set flatten float floor forall format_number
    from_unixtime from_utc_timestamp get_json_object getbit greatest grouping grouping_id hash hex hour hypot if
    ifnull ilike initcap instr int isnan isnotnull isnull json_array_length kurtosis lag last_day lcase lead least
    left len length levenshtein like ln locate log log10 log1p log2 lower lpad ltrim make_date make_timestamp map
    map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values max md5 mean median
    min minute mod month monthname months_between named_struct nanvl negative next_day nth_value ntile nullif
    nullifzero nvl nvl2 octet_length overlay percent_rank percentile percentile_approx percentile_cont
    percentile_disc pi pmod posexplode posexplode_outer position positive pow power quarter radians rank reduce
    regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace
    reverse right rint rlike round row_number rpad rtrim sec second sha sha1 sha2 shiftleft shiftright
    shiftrightunsigned sign signum sin sinh size skewness slice smallint some sort_array soundex space split
    split_part sqrt startswith std stddev stddev_pop stddev_samp str_to_map string struct substr substring
    substring_index sum tan tanh timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
    timestampdiff tinyint to_char to_date to_number to_timestamp to_unix_timestamp to_utc_timestamp to_varchar
    transform translate trim trunc try_add try_avg try_divide try_element_at try_mod try_multiply try_subtract
    try_sum try_to_date try_to_number try_to_timestamp typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_seconds upper var_pop var_samp variance weekday weekofyear width_bucket xxhash64 year zeroifnull zip_with
    """.split()
)

_UNREPEATABLE = frozenset(
    """
    any_value array_agg collect_list collect_set curdate current_catalog current_database current_date
    current_schema current_timestamp current_user effective_user first first_value last last_value listagg
    is_member logged_in_user max_by min_by mode now rand random session_user string_agg unix_timestamp user uuid version
    """.split()
)

IN_EVERY_DIALECT = _REPEATABLE | _UNREPEATABLE
"""Functions whose meaning in other dialects was checked; the others are allowed in Spark's dialect only."""

REPEATABLE = _REPEATABLE | frozenset(
    """
    aes_decrypt approx_top_k_estimate array_append array_insert array_prepend array_repeat arrays_zip assert_true
    bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg collate
    collation collations convert_timezone count_min_sketch counter_diff current_timezone e format_string from_base32
    from_csv from_json from_xml get hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac inline
    inline_outer is_valid_utf8 is_valid_variant is_variant_null jaro_winkler_similarity json_object_keys json_tuple
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
    kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float luhn_check make_dt_interval make_interval make_time make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map_filter map_zip_with mask parse_json parse_url printf
    quote range schema_of_csv schema_of_json schema_of_variant schema_of_xml sentences sequence session_window
    sql_keywords st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack theta_difference
    theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg
    time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
    time_to_seconds time_trunc timediff to_base32 to_binary to_csv to_json to_time to_timestamp_ltz to_timestamp_ntz
    to_variant_object to_xml transform_keys transform_values try_aes_decrypt try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_parse_json try_parse_url try_to_binary try_to_time
    try_url_decode try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer unix_nanos url_decode url_encode validate_utf8 variant_array_append variant_delete
    variant_explode variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum window
    window_time xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string
    """.split()
)
"""Functions whose result depends only on their arguments, or on all rows together."""

UNREPEATABLE = _UNREPEATABLE | frozenset(
    """
    aes_encrypt approx_top_k approx_top_k_accumulate approx_top_k_combine collect_union current_time
    histogram_numeric kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float localtime localtimestamp monotonically_increasing_id randn randstr schema_of_variant_agg
    shuffle spark_partition_id uniform
    """.split()
)
"""Functions whose result depends on the time, on chance, on the user, or on the order of rows."""

FUNCTIONS = REPEATABLE | UNREPEATABLE
"""Functions that statements may call."""

ANALYTIC = frozenset("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number".split())
"""Functions that need OVER."""

AGGREGATES = frozenset(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and bit_or bit_xor
    bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr
    count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max max_by mean median min min_by
    mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_sketch_agg try_avg try_sum var_pop var_samp variance
    """.split()
)
"""Functions of the rows of a group, as clients list them."""

GENERATORS = frozenset(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack variant_explode
    variant_explode_outer
    """.split()
)
"""Functions that make rows, in the select list, in LATERAL VIEW and in FROM."""

TABLE_FUNCTIONS = GENERATORS | {"collations", "range", "sql_keywords"}
"""Functions that may stand in FROM."""

WITHOUT_CALLS = frozenset(
    "! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~ and between case cast in not or when".split()
)
"""Operators and forms of syntax, which Spark lists among its functions: statements write them as such."""

OF_THE_GATEWAY = frozenset("effective_user is_member logged_in_user timediff timestampadd timestampdiff".split())
"""Functions that are not in Spark's list: the gateway's own, and those that Spark's grammar knows."""

REFUSED: Mapping[str, str] = {
    name: reason
    for names, reason in (
        ("java_method reflect try_reflect", "it calls methods of Java in the engine's own process"),
        ("input_file_name input_file_block_start input_file_block_length", "it tells where a table's files are"),
        ("python_worker_logs", "it shows logs of the engine"),
        (
            "from_avro to_avro schema_of_avro from_protobuf to_protobuf",
            "it needs a library that the gateway's Spark does not have",
        ),
        ("measure", "it needs a metric view, of which there are none here"),
        ("timestamp_nanos", "its type has no form that clients can read"),
        ("current_path", "it tells about the engine's session; use current_database()"),
        ("raise_error", "only the gateway's own texts call it; use assert_true"),
    )
    for name in names.split()
}
"""Functions of Spark that statements may not call, each with the reason."""


REFUSED_FORMS: Mapping[str, str] = {
    "identifier": "names are known before a statement runs, so it takes a constant text",
    "table": "functions take no whole tables",
}
"""Forms of Spark's grammar that look like functions, each with the reason why statements may not use it."""


def function_names() -> tuple[str, ...]:
    """Return the names of functions that statements may use, sorted."""
    return tuple(sorted(FUNCTIONS))
