"""Users of identity providers, directories and Kerberos realms, beside the users file. START HERE: authenticator.py.

A source proves an identity, a name and groups: ``tokens.py`` by OpenID Connect, ``passwords.py`` by LDAP,
``tickets.py`` by what ``kerberos.py`` has checked, ``service_accounts.py`` by tokens of the gateway's own. The
authenticator makes a user of it, and finds that user again for drivers' sessions and for other gateways.
``browser_login.py`` has people with a browser log in at a provider.
"""
