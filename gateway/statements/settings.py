"""Settings of a session and their effects: one table for all interfaces.

Clients send settings of Spark, Hive and Impala. One that changes what a statement does is obeyed, or refused where it
asks for anything but what the gateway does anyway. Where a driver opens a session with one that only asks that less be
refused, it is kept with a warning: some tools always send it (dbt-spark). One that only says how other products do
their work (memory, parallelism, file sizes) is kept and shown, and does nothing. A setting of these products that is
not in the table is refused, because nobody knows what it would change; from a driver of theirs, whose tools set what
they know, it is kept with a warning, SETTING_IGNORED, unless it is one of the table that is misspelt. Any other name is
a variable of the client's own.

It is long because it is one table of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from gateway.errors import SettingNotObeyed
from gateway.statements import AUTO
from gateway.statements.partitions import Overwrite
from selector.decision import Rule
from sql.dialects.names import SPARK, dialect_named

OWN = "fusion."
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
IGNORED = "SETTING_IGNORED"
REGULAR, NOT_USED = "REGULAR", "NOT USED"  # what SET tells of a setting
TAGS_HEADER = "x-fusion-tags"  # that HTTP clients send in the place of fusion.tags, or beside it
MOST_TAGS, LONGEST_TAG = 64, 128
DIGITS_OF_THREADS = 4
LONGEST_MISSPELT = 100  # characters of a name that are compared with those of known settings


class Influence(StrEnum):
    """Effect of a setting in this gateway."""

    OBEYED = "obeyed"
    AS_HERE = "as here"
    """It says what the gateway does anyway."""

    NONE = "none"
    """It has no influence on what statements mean."""

    VARIABLE = "variable"
    """It belongs to no product: a variable of the client's."""

    UNKNOWN = "unknown"
    """It belongs to a product, and is not known here."""


@dataclass(frozen=True, slots=True)
class Option:
    """Setting that has an effect. read: parser of its text; raises ValueError."""

    name: str
    default: str
    meaning: str
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Setting with fixed behaviour: only values that match it are accepted.

    values: accepted texts, in lower case. does: behaviour of the gateway, and the alternative to ask for.
    is_stricter: other values would only refuse less, so that accepted statements mean the same.
    """

    values: tuple[str, ...]
    does: str
    is_stricter: bool = False


def _seconds(text: str) -> float | None:
    """Read a time, with one of Hive's units or none for seconds."""
    stripped = text.strip().lower()
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = stripped[len(digits) :]
    try:
        seconds = float(digits or "0") * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (0 <= seconds < math.inf or seconds == -1):
        raise ValueError("a number of seconds, 0 for none")
    return seconds if seconds > 0 else None


def _threads(text: str) -> int | None:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_OF_THREADS):
        raise ValueError("a number of threads, 0 for none in particular")
    return int(digits) or None


def _overwrite(text: str) -> Overwrite | None:
    if text.lower() in ("", "static", "dynamic"):
        return Overwrite(text.lower()) if text else None
    raise ValueError("static or dynamic")


def _rule(text: str) -> Rule | None:
    if text and text.lower() not in list(Rule):
        raise ValueError(f"one of {', '.join(Rule)}")
    return Rule(text.lower()) if text else None


def tags_of(text: str) -> tuple[str, ...]:
    """Read tags with commas between them. Raises ValueError."""
    tags = tuple(dict.fromkeys(tag for tag in map(str.strip, text.split(",")) if tag))
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG or not tag.isprintable() for tag in tags):
        raise ValueError(f"at most {MOST_TAGS} tags with commas between them, each of at most {LONGEST_TAG} signs")
    return tags


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError("true or false")
    return text.lower() in ("true", "1")


def _switch(text: str) -> bool | None:
    if text.lower() not in ("", "on", "off", "true", "false", "1", "0"):
        raise ValueError("on or off")
    return text.lower() in ("on", "true", "1") if text else None


def _mode(text: str) -> bool:
    if text.lower() not in ("strict", "nonstrict"):
        raise ValueError("strict or nonstrict")
    return text.lower() == "strict"


ENGINE = Option(f"{OWN}engine", AUTO, "the engine that statements run on, or auto", str)
DIALECT = Option(f"{OWN}dialect", SPARK, "the dialect that statements are read in", dialect_named)
POLICY = Option(
    f"{OWN}policy",
    "",
    "what decides where statements run: expected, the least expected seconds; safe, the fast engine only where running "
    "out of memory is improbable; paper, the paper's formula. Not set: as the pool or the gateway has it",
    _rule,
)
POOL = Option(f"{OWN}pool", "", "the pool whose limits and policy hold, see the setting pools", str)
TAGS = Option(f"{OWN}tags", "", "what routing rules are told of statements, with commas between", tags_of)
THREADS = Option(
    f"{OWN}threads",
    "0",
    "threads that work for a statement on DuckDB, at most one per processor of the gateway's machine unless it gives "
    "statements more; 0: as the pool or the engine has it",
    _threads,
)
CACHE = Option(
    f"{OWN}cache",
    "",
    "whether queries may be answered with the result of an earlier run while nothing that they read has changed, on or "
    "off. Not set: as the pool or the gateway has it",
    _switch,
)
EARLY_ROWS = Option(
    f"{OWN}early_rows",
    "",
    "whether rows of a query can be read while it runs, where no other engine's rows can take their place any more, on "
    "or off. Not set: as the gateway has it",
    _switch,
)
TIMEOUT_S = Option(f"{OWN}timeout_s", "0", "seconds that a statement may take; 0 for the gateway's limit", _seconds)
IDLE_S = Option(
    f"{OWN}idle_s", "0", "seconds without a call after which the session is closed; 0 for the gateway's limit", _seconds
)
NESTED_JSON = Option(
    f"{OWN}nested_json",
    "false",
    "whether drivers of Hive are sent arrays, maps and structs as JSON; else as Hive writes them",
    _boolean,
)
OVERWRITE = Option(
    "spark.sql.sources.partitionOverwriteMode",
    "",
    "what INSERT OVERWRITE replaces of a partitioned table: static, all that the statement names; dynamic, only "
    "partitions that rows go to. Not set: dynamic in the dialects hive and impala, else static",
    _overwrite,
)
DYNAMIC = Option(
    "hive.exec.dynamic.partition", "true", "whether a query may say which partitions its rows go to", _boolean
)
STRICT = Option(
    "hive.exec.dynamic.partition.mode",
    "nonstrict",
    "strict: an INSERT gives at least one partition column a value",
    _mode,
)
SUBSTITUTE = Option(
    "hive.variable.substitute",
    "true",
    "whether ${hivevar:x} and ${x} stand for values of the session, in the dialects spark and hive",
    _boolean,
)
OBEYED = (
    ENGINE,
    DIALECT,
    POLICY,
    POOL,
    TAGS,
    THREADS,
    CACHE,
    EARLY_ROWS,
    TIMEOUT_S,
    IDLE_S,
    NESTED_JSON,
    OVERWRITE,
    DYNAMIC,
    STRICT,
    SUBSTITUTE,
)
OPTIONS: Mapping[str, Option] = {
    **{option.name.lower(): option for option in OBEYED},
    "exec_time_limit_s": TIMEOUT_S,  # Impala's name of the same
    "hive.query.timeout.seconds": TIMEOUT_S,
    "spark.sql.thriftserver.querytimeout": TIMEOUT_S,
    "idle_session_timeout": IDLE_S,  # Impala's
    "stringify_map_keys": NESTED_JSON,  # Impala's
    "request_pool": POOL,  # Impala's, too
    "mt_dop": THREADS,  # Impala's
    "spark.sql.variable.substitute": SUBSTITUTE,  # Spark's
}

_TRUE, _FALSE, _NONE = ("true", "1"), ("false", "0"), ("", "0", "-1", "0s", "0ms")
_UTC = (
    "utc",
    "etc/utc",
    "gmt",
    "etc/gmt",
    "z",
    "+00:00",
    "utc+0",
    "gmt+0",
    "utc+00:00",
    "gmt+00:00",
    "zulu",
    "etc/zulu",
)
_IN_UTC = "Times are in UTC here; use from_utc_timestamp and to_utc_timestamp."
_IN_PARQUET = "Tables are made in Parquet unless the statement says otherwise: CREATE TABLE t ... STORED AS orc."
_BY_LOGIN = "Who somebody is follows from the login alone."
_NO_LIMIT = "There is no such limit here; fusion.timeout_s limits a statement's time."
FIXED: Mapping[str, Fixed] = {
    "spark.sql.ansi.enabled": Fixed(
        _TRUE, "Statements mean what they mean in Spark's ANSI mode; use try_... for NULL.", is_stricter=True
    ),
    "spark.sql.ansi.doublequotedidentifiers": Fixed(_FALSE, "Double quotes are for texts; names have `."),
    "spark.sql.ansi.enforcereservedkeywords": Fixed(_FALSE, "Words that SQL reserves can be names."),
    "spark.sql.ansi.relationprecedence": Fixed(_FALSE, "A comma joins before JOIN does; write brackets."),
    "spark.sql.session.timezone": Fixed(_UTC, _IN_UTC),
    "spark.sql.timestamptype": Fixed(("timestamp_ltz",), "TIMESTAMP is a moment; write TIMESTAMP_NTZ."),
    "spark.sql.casesensitive": Fixed(_FALSE, "Names are the same in upper and lower case."),
    "spark.sql.storeassignmentpolicy": Fixed(
        ("ansi",), "Rows that do not fit a column's type are refused.", is_stricter=True
    ),
    "spark.sql.mapkeydeduppolicy": Fixed(("exception",), "A map with a key twice is an error.", is_stricter=True),
    "spark.sql.groupbyaliases": Fixed(_TRUE, "GROUP BY takes aliases."),
    "spark.sql.groupbyordinal": Fixed(_TRUE, "GROUP BY takes places of columns."),
    "spark.sql.orderbyordinal": Fixed(_TRUE, "ORDER BY takes places of columns."),
    "spark.sql.crossjoin.enabled": Fixed(_TRUE, "Joins without a condition are allowed."),
    "spark.sql.parser.quotedregexcolumnnames": Fixed(_FALSE, "A name in ` is no pattern."),
    "spark.sql.parser.escapedstringliterals": Fixed(_FALSE, "A backslash escapes in texts; write r'...'."),
    "spark.sql.function.concatbinaryasstring": Fixed(_FALSE, "Bytes that are put together stay bytes."),
    "spark.sql.function.eltoutputasstring": Fixed(_FALSE, "elt of bytes gives bytes."),
    "spark.sql.legacy.timeparserpolicy": Fixed(("corrected",), "Patterns of times are those of Spark since 3.0."),
    "spark.sql.files.ignorecorruptfiles": Fixed(_FALSE, "A file that cannot be read is an error.", is_stricter=True),
    "spark.sql.files.ignoremissingfiles": Fixed(_FALSE, "A file that is gone is an error.", is_stricter=True),
    "spark.sql.parquet.binaryasstring": Fixed(_FALSE, "Bytes are not read as texts; CAST them."),
    "spark.sql.parquet.int96astimestamp": Fixed(_TRUE, "INT96 is read as a time."),
    "spark.sql.parquet.int96timestampconversion": Fixed(_FALSE, _IN_UTC),
    "spark.sql.parquet.mergeschema": Fixed(_FALSE, "A table has the columns with which it is registered."),
    "spark.sql.orc.mergeschema": Fixed(_FALSE, "A table has the columns with which it is registered."),
    "spark.sql.sources.default": Fixed(("parquet",), _IN_PARQUET),
    "spark.sql.defaultcatalog": Fixed(("spark_catalog",), "There is one catalog."),
    "hive.mapred.mode": Fixed(("nonstrict",), "Queries need no condition on partitions."),
    "hive.strict.checks.cartesian.product": Fixed(_FALSE, "Joins without a condition are allowed."),
    "hive.strict.checks.no.partition.filter": Fixed(_FALSE, "Queries need no condition on partitions."),
    "hive.strict.checks.orderby.no.limit": Fixed(_FALSE, "ORDER BY needs no LIMIT."),
    "hive.strict.checks.type.safety": Fixed(_FALSE, "What is compared is cast as Spark does it."),
    "hive.groupby.orderby.position.alias": Fixed(_TRUE, "GROUP BY and ORDER BY take places of columns."),
    "hive.groupby.position.alias": Fixed(_TRUE, "GROUP BY takes places of columns."),
    "hive.orderby.position.alias": Fixed(_TRUE, "ORDER BY takes places of columns."),
    "hive.support.quoted.identifiers": Fixed(("column",), "A name in ` is no pattern."),
    "hive.resultset.use.unique.column.names": Fixed(_FALSE, "Columns of a result have no table before their name."),
    "hive.default.nulls.last": Fixed(_FALSE, "NULL comes first in ascending order; write NULLS LAST."),
    "hive.default.fileformat": Fixed(("parquet",), _IN_PARQUET),
    "hive.default.fileformat.managed": Fixed(("none", "", "parquet"), _IN_PARQUET),
    "hive.exec.default.partition.name": Fixed(("__hive_default_partition__",), "NULL has Hive's usual folder."),
    "hive.error.on.empty.partition": Fixed(_FALSE, "An INSERT may write no rows."),
    "hive.exec.drop.ignorenonexistent": Fixed(_FALSE, "Write DROP TABLE IF EXISTS.", is_stricter=True),
    "hive.typecheck.on.insert": Fixed(_TRUE, "Rows that do not fit a column's type are refused.", is_stricter=True),
    "hive.limit.optimize.enable": Fixed(_FALSE, "LIMIT reads as many rows as it takes."),
    "hive.create.as.acid": Fixed(_FALSE, "Tables are folders of files, without transactions of rows."),
    "hive.create.as.insert.only": Fixed(_FALSE, "Tables are folders of files, without transactions of rows."),
    "hive.local.time.zone": Fixed(_UTC, _IN_UTC),
    "hive.server2.proxy.user": Fixed((), _BY_LOGIN),
    "impala.doas.user": Fixed((), _BY_LOGIN),
    "abort_on_error": Fixed(_TRUE, "A file that cannot be read is an error; nothing is left out.", is_stricter=True),
    "allow_unsafe_casts": Fixed(_FALSE, "Write the CAST."),
    "appx_count_distinct": Fixed(_FALSE, "COUNT(DISTINCT) is exact; write NDV(x)."),
    "convert_legacy_hive_parquet_utc_timestamps": Fixed(_FALSE, _IN_UTC),
    "debug_action": Fixed(("",), "There are no such actions here."),
    "decimal_v2": Fixed(_TRUE, "Decimals follow Spark's rules, which are near those of DECIMAL_V2."),
    "default_file_format": Fixed(("parquet",), _IN_PARQUET),
    "default_order_by_limit": Fixed(_NONE, "ORDER BY gives all rows; write LIMIT."),
    "abort_on_default_limit_exceeded": Fixed(_FALSE, "There is no such limit here."),
    "default_transactional_type": Fixed(("none", ""), "Tables are folders of files, without transactions of rows."),
    "expand_complex_types": Fixed(_FALSE, "A star gives all columns, whatever their types."),
    "now_string": Fixed(("",), "now() is the time at which the statement runs."),
    "parquet_fallback_schema_resolution": Fixed(("name", "1"), "Columns of files are found by their names."),
    "orc_schema_resolution": Fixed(("name", "1"), "Columns of files are found by their names."),
    "timezone": Fixed(_UTC, _IN_UTC),
    "use_local_tz_for_unix_timestamp_conversions": Fixed(_FALSE, _IN_UTC),
    "utf8_mode": Fixed(_TRUE, "Functions of texts count characters, not bytes; use octet_length."),
    "num_rows_produced_limit": Fixed(_NONE, _NO_LIMIT),
    "join_rows_produced_limit": Fixed(_NONE, _NO_LIMIT),
    "scan_bytes_limit": Fixed(_NONE, _NO_LIMIT),
    "cpu_limit_s": Fixed(_NONE, _NO_LIMIT),
}

_LEGACY = Fixed(_FALSE, "Statements mean what they mean in Spark 4, not in earlier releases.")
_PRODUCTS = tuple(
    """
    spark. hive. impala. kyuubi. trino. mapred. mapreduce. tez. yarn. hadoop. fs. dfs. io. ipc. parquet. orc. avro.
    metastore. datanucleus. javax. llap. set: use:
    """.split()
)
_NO_INFLUENCE_BELOW = tuple(
    """
    spark.app. spark.blockmanager. spark.broadcast. spark.buffer. spark.cleaner. spark.connect. spark.cores.
    spark.default.parallelism spark.driver. spark.dynamicallocation. spark.eventlog. spark.excludeonfailure.
    spark.executor. spark.history. spark.io. spark.job. spark.kryo spark.kubernetes. spark.locality. spark.master
    spark.maxremoteblocksizefetchtomem spark.memory. spark.metrics. spark.network. spark.port. spark.rdd. spark.reducer.
    spark.rpc. spark.scheduler. spark.serializer spark.shuffle. spark.speculation spark.stage. spark.storage.
    spark.submit. spark.task. spark.thriftserver. spark.ui. spark.yarn. spark.sql.adaptive. spark.sql.autobroadcast
    spark.sql.broadcast spark.sql.bucketing. spark.sql.cbo. spark.sql.codegen. spark.sql.debug.
    spark.sql.execution.arrow.
    spark.sql.execution.topk spark.sql.exchange. spark.sql.files.max spark.sql.files.min spark.sql.files.opencost
    spark.sql.hive.convert spark.sql.hive.filesource spark.sql.hive.manage spark.sql.hive.metastore
    spark.sql.hive.thriftserver. spark.sql.hive.verifypartitionpath spark.sql.inmemorycolumnarstorage.
    spark.sql.join. spark.sql.maxbroadcast spark.sql.maxmetadata spark.sql.maxplan spark.sql.maxsinglepartition
    spark.sql.metadatacache spark.sql.optimizer. spark.sql.orc.aggregatepushdown spark.sql.orc.columnar
    spark.sql.orc.compression. spark.sql.orc.enable spark.sql.orc.filterpushdown spark.sql.orc.impl
    spark.sql.parquet.aggregatepushdown spark.sql.parquet.columnar spark.sql.parquet.compression.
    spark.sql.parquet.enable spark.sql.parquet.filterpushdown spark.sql.parquet.recordlevelfilter.
    spark.sql.parquet.respectsummaryfiles spark.sql.parquet.writelegacyformat spark.sql.pivotmaxvalues
    spark.sql.planner.
    spark.sql.redaction. spark.sql.repl. spark.sql.requirealldistribution spark.sql.shuffle.
    spark.sql.shuffledependency. spark.sql.shuffledhashjoin spark.sql.sort spark.sql.sources.bucketing.
    spark.sql.sources.parallelpartition spark.sql.sources.v2.bucketing. spark.sql.statistics. spark.sql.streaming.
    spark.sql.subquery. spark.sql.thriftserver. spark.sql.ui. spark.sql.warehouse. spark.sql.window.
    spark.sql.windowexec.
    hive.auto.convert. hive.async. hive.cbo. hive.cli. hive.client. hive.combine. hive.compactor. hive.compute.query.
    hive.conf. hive.conv hive.convert.join. hive.counters. hive.default.serde hive.enforce. hive.exec.compress.
    hive.exec.copyfile. hive.exec.counters. hive.exec.driver. hive.exec.dynamic.partition.max hive.exec.failure.
    hive.exec.infer. hive.exec.input. hive.exec.job. hive.exec.local. hive.exec.max. hive.exec.mode.local.
    hive.exec.orc. hive.exec.parallel hive.exec.perf. hive.exec.post. hive.exec.pre. hive.exec.reducers.
    hive.exec.scratchdir hive.exec.stagingdir hive.exec.submit hive.exec.tasklog. hive.exec.temporary. hive.execution.
    hive.explain. hive.fetch. hive.file.max. hive.fileformat.check hive.groupby.limit. hive.groupby.mapaggr.
    hive.groupby.skewindata hive.hadoop. hive.hash. hive.hashtable. hive.heartbeat. hive.index. hive.input. hive.insert.
    hive.intermediate. hive.io. hive.jar. hive.jobname. hive.join. hive.limit.pushdown. hive.limit.row. hive.llap.
    hive.load. hive.lock. hive.log hive.map. hive.mapjoin. hive.mapper. hive.materializedview. hive.max.
    hive.merge. hive.metastore. hive.mv. hive.new. hive.optimize. hive.orc. hive.prewarm. hive.privilege. hive.ppd.
    hive.query.id hive.query.name hive.query.results.cache. hive.query.string hive.querylog. hive.rpc. hive.sample.
    hive.scratch. hive.script. hive.security. hive.server2. hive.service. hive.session. hive.skewjoin.
    hive.smbjoin. hive.spark. hive.ssl. hive.start. hive.stageid. hive.stats. hive.support.concurrency hive.task.
    hive.test. hive.tez. hive.timedout. hive.transpose. hive.txn. hive.unlock. hive.user. hive.vectorized.
    hive.warehouse.
    hive.zookeeper.
    impala. kyuubi. mapred. mapreduce. tez. yarn. hadoop. io. ipc. dfs. llap. metastore. datanucleus. javax.
    parquet.block. parquet.compression parquet.dictionary. parquet.enable. parquet.memory. parquet.page. orc.compress
    orc.stripe. orc.row. orc.bloom.
    """.split()
)
_NO_INFLUENCE = frozenset(  # Impala's
    """
    agg_mem_correlation_factor aggregated_profile allow_erasure_coded_files allow_unsupported_formats
    analytic_rank_pushdown_threshold async_codegen batch_size broadcast_bytes_limit broadcast_cost_scale_factor
    broadcast_to_partition_factor buffer_pool_limit client_identifier codegen_cache_mode codegen_opt_level
    compression_codec compute_column_minmax_stats compute_processing_cost compute_stats_min_sample_size cte_threshold
    default_hints_insert_statement default_join_distribution_mode default_ndv_scale default_spillable_buffer_size
    delete_stats_in_truncate disable_cached_reads disable_codegen disable_codegen_rows_threshold disable_data_cache
    disable_hbase_num_rows_estimate disable_hdfs_num_rows_estimate disable_optimized_iceberg_v2_read
    disable_optimized_json_count_star disable_outermost_topn disable_row_runtime_filtering
    disable_streaming_preaggregations disable_unsafe_spills enable_async_ddl_execution
    enable_async_load_data_execution enable_cnf_rewrites enable_distinct_semi_join_optimization enable_expr_rewrites
    enable_kudu_transaction enable_outer_join_to_inner_transformation enable_replan enable_trivial_query_for_admission
    enable_tuple_cache enabled_runtime_filter_types exec_single_node_rows_threshold explain_level fetch_rows_timeout_ms
    hbase_cache_blocks hbase_caching hdfs_scanner_non_reserved_bytes hide_analyzed_query
    join_selectivity_correlation_factor kudu_read_mode kudu_replica_selection kudu_snapshot_read_timestamp_micros
    kudu_table_reserve_seconds live_progress live_summary lock_max_wait_time_s long_polling_time_ms max_cnf_exprs
    max_errors max_fragment_instances_per_node max_fs_writers max_io_buffers max_mem_estimate_for_admission
    max_num_filters_aggregated_per_host max_num_runtime_filters max_result_spooling_mem max_row_size
    max_scan_range_length max_sort_run_size max_spilled_result_spooling_mem max_statement_length_bytes mem_limit
    mem_limit_coordinators mem_limit_executors min_spillable_buffer_size minmax_filter_fast_code_path
    minmax_filter_partition_columns minmax_filter_sorted_columns minmax_filter_threshold minmax_filtering_level
    num_nodes num_remote_executor_candidates num_scanner_threads num_threads_for_table_migration
    optimize_partition_key_scans optimize_simple_limit orc_async_read orc_read_statistics parquet_annotate_strings_utf8
    parquet_bloom_filter_write parquet_bloom_filtering parquet_compression_codec parquet_dictionary_filtering
    parquet_dictionary_runtime_filter_entry_limit parquet_file_size parquet_late_materialization_threshold
    parquet_object_store_split_size parquet_page_row_count_limit parquet_read_page_index parquet_read_statistics
    parquet_write_page_index planner_testcase_mode preagg_bytes_limit prefetch_mode processing_cost_min_threads
    query_cpu_count_divisor query_timeout_s refresh_updated_hms_partitions replica_preference report_skew_limit
    reservation_request_timeout resource_trace_ratio retry_failed_queries rm_initial_mem
    runtime_bloom_filter_size runtime_filter_error_rate runtime_filter_max_size runtime_filter_min_size
    runtime_filter_mode runtime_filter_wait_time_ms runtime_in_list_filter_entry_limit s3_skip_insert_staging
    scan_node_codegen_threshold schedule_random_replica scratch_limit seq_compression_mode
    show_column_minmax_stats show_create_table_partition_limit shuffle_distinct_exprs slot_count_strategy
    sort_run_bytes_limit spool_all_results_for_retries spool_query_results statement_expression_limit store_hbo_stats
    support_start_over sync_ddl sync_hms_events_strict_mode sync_hms_events_wait_time_s targeted_kudu_scan_range_length
    test_replan thread_reservation_aggregate_limit thread_reservation_limit topn_bytes_limit use_dop_for_costing
    use_hbo_stats use_null_slots_cache v_cpu_cores
    """.split()
)


def influence_of(name: str, value: str) -> Influence:
    """Tell what a setting does here. Raises SettingNotObeyed where it asks for what the gateway does not do."""
    lower = name.lower().removeprefix("spark.hadoop.")
    if lower in OPTIONS:
        return Influence.OBEYED
    fixed = _fixed(lower)
    if fixed is not None:
        if value.strip().lower() not in fixed.values:
            raise SettingNotObeyed(f"{name} = {value[:80]} is not obeyed here. {fixed.does}")
        return Influence.AS_HERE
    if lower in _NO_INFLUENCE or lower.startswith(_NO_INFLUENCE_BELOW):
        return Influence.NONE
    return Influence.VARIABLE if is_variable(name) else Influence.UNKNOWN


def asks_for_leniency(name: str) -> bool:
    """Tell whether a setting, where it asks for what the gateway does not do, only asks that less be refused."""
    fixed = _fixed(name.lower().removeprefix("spark.hadoop."))
    return fixed is not None and fixed.is_stricter


def _fixed(lower: str) -> Fixed | None:
    return FIXED.get(lower) or (_LEGACY if lower.startswith("spark.sql.legacy.") else None)


def is_variable(name: str) -> bool:
    """Tell whether a name belongs to no product, but to the client itself."""
    lower = name.lower().removeprefix("spark.hadoop.")
    return not (lower in OPTIONS or lower in FIXED or lower in _NO_INFLUENCE or lower.startswith(_PRODUCTS))


def level_of(name: str) -> str:
    """Return the level that SET shows beside a setting; impala-shell prints the first of these."""
    lower = name.lower().removeprefix("spark.hadoop.")
    if lower in OPTIONS or lower in FIXED:
        return REGULAR
    is_known = lower in _NO_INFLUENCE or lower.startswith(_NO_INFLUENCE_BELOW)
    return "UNKNOWN" if lower.startswith(_PRODUCTS) and not is_known else NOT_USED


def near_miss(name: str) -> str | None:
    """Return the setting that changes what statements do and is spelt nearly like an unknown name; None for none."""
    names = (*OPTIONS, *FIXED)
    near = get_close_matches(name.lower()[:LONGEST_MISSPELT], names, n=1, cutoff=0.95)
    return near[0] if near else None


def options_of_impala() -> Mapping[str, str]:
    """Return Impala's own query options with what they are where nobody set them; empty where that means nothing."""
    fixed = {name: option.values[0] for name, option in FIXED.items() if "." not in name and option.values}
    obeyed = {name: option.default for name, option in OPTIONS.items() if "." not in name}
    return dict(sorted((dict.fromkeys(_NO_INFLUENCE, "") | fixed | obeyed).items()))
