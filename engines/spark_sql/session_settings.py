"""Settings of every session of Spark, over any protocol."""

from __future__ import annotations

from collections.abc import Mapping

from engines.parser_settings import SPARK_AS_WRITTEN

FORMATS = frozenset({"parquet", "csv", "json", "orc"})
"""Formats of files that Spark reads without further packages."""

SESSION_SETTINGS: Mapping[str, str] = {
    **SPARK_AS_WRITTEN,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # the meaning that all engines share, also on a server with other settings
    "spark.sql.runSQLOnFiles": "false",
    # Of many files, each is looked at in a job with a task per file otherwise: for 4,000 files 13 s, with these 5 s.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.sql.files.ignoreMissingFiles": "false",  # or rows of a file that is gone would be missing
    "spark.sql.files.ignoreCorruptFiles": "false",
    # Dates before 1582 as stored in the file, as every other engine reads them.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Fields of FLOAT or DOUBLE: many writers leave NaN out of minimum and maximum, see reading.py.
    "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources": "",
    "spark.sql.timeType.enabled": "true",  # else a TIME column makes a whole table unreadable
}

CAREFUL_SETTINGS: Mapping[str, str] = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # a broadcast is held whole; joins of sorted rows spill
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",  # which may ask for broadcasts
    "spark.sql.join.preferSortMergeJoin": "true",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.files.maxPartitionBytes": str(8 * 1024 * 1024),
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    "spark.sql.orc.columnarReaderBatchSize": "1024",
}
"""Extra settings of a statement that ran out of memory: slower, in smaller pieces that spill."""
