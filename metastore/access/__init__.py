"""START HERE: grants.py. Grants and roles that statements gave."""
