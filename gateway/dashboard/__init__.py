"""Pages for people: queries with their decisions and attempts, load, rules, statistics. START HERE: pages.py."""
