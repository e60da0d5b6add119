"""The gateway: what faces people and programs."""

PRODUCT = "Fusion SQL Gateway"
