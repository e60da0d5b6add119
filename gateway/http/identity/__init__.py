"""Routes about who comes in. START HERE: service_accounts.py."""
