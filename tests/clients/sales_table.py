"""A small table with times, a view of it, and copies in an Iceberg catalog, for tools without data of their own."""

from __future__ import annotations

STATEMENTS = (
    "CREATE TABLE sales (place STRING, amount DECIMAL(10, 2), day DATE, moment TIMESTAMP)",
    """INSERT INTO sales VALUES
    ('Ulm', CAST(10.50 AS DECIMAL(10, 2)), DATE '2023-12-31', TIMESTAMP '2023-12-31 23:59:59'),
    ('Ulm', CAST(2.25 AS DECIMAL(10, 2)), DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00'),
    ('Ulm', CAST(7.00 AS DECIMAL(10, 2)), DATE '2024-02-29', TIMESTAMP '2024-02-29 12:34:56'),
    ('Gera', CAST(1.75 AS DECIMAL(10, 2)), DATE '2024-05-05', TIMESTAMP '2024-05-05 05:05:05'),
    ('Gera', CAST(3.00 AS DECIMAL(10, 2)), DATE '2024-05-05', TIMESTAMP '2024-05-05 05:55:55'),
    ('Ulm', CAST(4.40 AS DECIMAL(10, 2)), DATE '2024-11-30', TIMESTAMP '2024-11-30 18:00:00')""",
    "CREATE VIEW sales_of_may AS SELECT place, amount FROM sales WHERE day BETWEEN '2024-05-01' AND '2024-05-31'",
    "CREATE TABLE sales_again AS SELECT * FROM sales",  # Superset takes a name once, whatever the database
    "CREATE DATABASE lake.shop",
    "CREATE TABLE lake.shop.orders AS SELECT * FROM sales",
    "CREATE TABLE lake.shop.orders_again AS SELECT * FROM sales",
)
