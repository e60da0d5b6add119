"""One process over one home folder: what it is built of, how it starts and ends. START HERE: wiring.py."""
