"""What Spark SQL is through either door, Spark Connect or HiveServer2: settings of its sessions, meaning of its errors.

START HERE: session_settings.py.
"""
