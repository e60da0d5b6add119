"""The tables that PyHive's suite expects, made through the gateway.

The suite makes them with Hive's own command line (its scripts/make_test_tables.sh). Hive's UNIONTYPE is in no engine
here: the column is a STRING with the text that Hive sends of it.
"""

from __future__ import annotations

COLUMNS = """`boolean` BOOLEAN, `tinyint` TINYINT, `smallint` SMALLINT, `int` INT, `bigint` BIGINT, `float` FLOAT,
    `double` DOUBLE, `string` STRING, `timestamp` TIMESTAMP, `binary` BINARY, `array` ARRAY<INT>, `map` MAP<INT, INT>,
    `struct` STRUCT<a: INT, b: INT>, `union` STRING, `decimal` DECIMAL(10, 1)"""

STATEMENTS = (
    "CREATE TABLE one_row (number_of_rows INT)",
    "INSERT INTO TABLE one_row VALUES (1)",
    f"CREATE TABLE one_row_complex ({COLUMNS})",
    f"CREATE TABLE one_row_complex_null ({COLUMNS})",
    """INSERT OVERWRITE TABLE one_row_complex
    SELECT true, 127Y, 32767S, 2147483647, 9223372036854775807L, CAST(0.5 AS FLOAT), 0.25D, 'a string',
        CAST('1970-01-01 00:00:00' AS TIMESTAMP), CAST('123' AS BINARY), array(1, 2), map(1, 2, 3, 4),
        named_struct('a', 1, 'b', 2), '{0:1}', CAST(0.1 AS DECIMAL(10, 1)) FROM one_row""",
    """INSERT OVERWRITE TABLE one_row_complex_null
    SELECT null, null, null, null, null, null, null, null, null, null, null, null, null, null, null FROM one_row""",
    "CREATE TABLE many_rows (a INT) PARTITIONED BY (b STRING)",
    """INSERT INTO many_rows PARTITION (b = 'blah')
    SELECT a FROM one_row LATERAL VIEW posexplode(split(space(9999), ' ')) numbers AS a, nothing""",
    "DROP DATABASE IF EXISTS pyhive_test_database CASCADE",
    "CREATE DATABASE pyhive_test_database",
    "CREATE TABLE pyhive_test_database.dummy_table (a INT)",
)
