"""Answers of fast engines, compared with the dependable one's in the background.

START HERE: sampler.py, which takes a share of the queries; comparing.py says what differs.
"""
