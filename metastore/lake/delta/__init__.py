"""Delta Lake, by delta-rs. START HERE: reading.py; what is written: writing.py."""
