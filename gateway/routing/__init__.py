"""Which engine runs a statement, and when: estimates, history, admission, circuit breakers. START HERE: router.py."""
