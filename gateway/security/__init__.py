"""Authentication and access control, below every door. START HERE: policy.py."""
