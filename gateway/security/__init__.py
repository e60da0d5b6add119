"""Who may come in, who may do what, and what others see of it: below every door. START HERE: policy.py."""
