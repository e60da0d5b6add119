"""What runs in the environments of other people's clients, where nothing of the gateway is installed.

START HERE: in_their_pytest.py.
"""
