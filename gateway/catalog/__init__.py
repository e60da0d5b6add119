"""Tables: checks of their locations, registration, and snapshots of the catalog. START HERE: registration.py."""
