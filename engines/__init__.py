"""Engines: one small protocol, one error tree, one adapter per engine."""
