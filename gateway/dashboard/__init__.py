"""Pages for people: what runs where, why it went there, and what became of it. START HERE: pages.py."""
