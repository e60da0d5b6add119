"""START HERE: grants.py. Statements that give, take away and show rights and roles."""
