"""Who may run when, and with how much memory: one budget per engine, pools over all of them. START HERE: admission.py.

What a statement holds, it holds until its result is closed.
"""
