"""Cache of results: answers repeated queries while their tables and files are unchanged. START HERE: answers.py."""
