"""Tables: where they may lie, and how they come into the catalog. START HERE: registration.py."""
