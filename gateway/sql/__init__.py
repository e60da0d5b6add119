"""Statement text in, a checked tree and each engine's SQL out: what a client sent never reaches an engine."""
