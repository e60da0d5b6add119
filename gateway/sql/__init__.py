"""Statement text in, a checked tree and each engine's SQL out. START HERE: statement.py."""
