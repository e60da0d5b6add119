"""Settings with which a server parses a text as the gateway checked it, under any settings of the server.

The server substitutes nothing in the text, and reads no word or sign differently. Each session gets these settings, and
an administrator cannot override them.
"""

from __future__ import annotations

from collections.abc import Mapping

SPARK_AS_WRITTEN: Mapping[str, str] = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.parser.singleCharacterPipeOperator.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.ansi.relationPrecedence": "false",
    "spark.sql.legacy.bangEqualsNot": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.ctePrecedencePolicy": "CORRECTED",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.interval.enabled": "false",
    "spark.sql.legacy.setopsPrecedence.enabled": "false",
    "spark.sql.scripting.enabled": "false",
    "spark.sql.timeTravel.atSyntax.enabled": "false",
    "spark.sql.udt.allowCreatingUDTFromString": "false",  # a schema's text would name a class to load
    "spark.sql.caseSensitive": "false",
    "spark.sql.groupByAliases": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}

HIVE_AS_WRITTEN: Mapping[str, str] = {
    "hive.variable.substitute": "false",
    "hive.support.quoted.identifiers": "column",
}


def first_conflict(settings: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first setting with which a text would be read differently, with its required value."""
    for name, needed in {**SPARK_AS_WRITTEN, **HIVE_AS_WRITTEN}.items():
        if settings.get(name, needed).strip().lower() != needed.lower():
            return name, needed
    return None
