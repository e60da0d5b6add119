"""The demo: data of a bookstore, and the paper's nine queries over it. START HERE: run.py."""
