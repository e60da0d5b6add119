"""What was asked, by whom, with which settings. START HERE: statement.py."""
