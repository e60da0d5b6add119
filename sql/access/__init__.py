"""Parts of tables and views that one user may see, put into a statement. START HERE: rights.py."""
