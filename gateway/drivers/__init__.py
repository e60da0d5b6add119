"""What drivers of other products speak. START HERE: operations.py, a statement that a client holds."""
