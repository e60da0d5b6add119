"""Shared by engines with Spark SQL, through Spark Connect or HiveServer2: sessions, their settings, errors.

START HERE: session_settings.py.
"""
