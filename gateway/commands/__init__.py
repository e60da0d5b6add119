"""What the gateway answers by itself: SHOW, SET, COMPUTE STATS, CREATE VIEW, EXPLAIN. START HERE: command_runner.py."""
