"""How many rows come out: of predicates, and of every node of a plan."""
