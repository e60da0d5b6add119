"""Statistics jobs as processes, their schedules, and which statistics are out of date. START HERE: jobs.py."""
