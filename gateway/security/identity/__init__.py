"""Users of an identity provider or a directory, beside those of the users file. START HERE: authenticator.py.

A source (``tokens.py``, OpenID Connect) proves an identity: a name and groups. The authenticator makes a user of it,
and finds that user again for drivers' sessions and for other gateways.
"""
