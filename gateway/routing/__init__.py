"""Which engine runs a statement, and when: estimates, history, ledgers, circuit breakers. START HERE: router.py."""
