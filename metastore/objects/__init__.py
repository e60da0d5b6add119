"""Object stores: tables' files there, and the parts of them that lie on this machine. START HERE: cache.py.

No engine reads an object store, and no credentials leave the gateway: ``cache.py`` fetches what a statement needs of
the files, and engines read these copies as files of this machine.
"""
