"""What the gateway answers by itself: SHOW, SET, COMPUTE STATS, CREATE VIEW. START HERE: command_runner.py."""
