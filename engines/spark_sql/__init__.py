"""What speaks Spark SQL shares, through Spark Connect or HiveServer2: sessions, their settings, meaning of errors.

START HERE: session_settings.py.
"""
