"""The gateway: what faces people and programs."""
