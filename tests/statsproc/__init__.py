"""Tests of the statistics processor."""
