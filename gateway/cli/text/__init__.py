"""Layout of printed rows, for people and for pipes, and the reading of scripts. START HERE: layout.py."""
