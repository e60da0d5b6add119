"""Results of runs that answer repeated queries, while all that they rest on is as it was. START HERE: answers.py."""
