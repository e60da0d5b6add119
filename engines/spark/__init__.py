"""Spark as the dependable engine, through Spark Connect."""
