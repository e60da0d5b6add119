"""Planning in processes of its own: what reads statements and estimates them can neither run away nor be in the way."""
