"""Planner processes, which parse statements within limits of time and memory. START HERE: pool.py."""
