"""Limits of a statement's cost: planning, the length of its values, exploding patterns. START HERE: growth.py."""
