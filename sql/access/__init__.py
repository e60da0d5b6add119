"""What one user may see of tables and views, put into a statement. START HERE: rights.py."""
