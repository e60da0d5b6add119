"""What a text may cost: planning, the length of its values, patterns that explode. START HERE: growth.py."""
