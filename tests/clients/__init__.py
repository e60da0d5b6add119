"""Other people's clients against a real gateway: their own test suites, and what their documentation tells to do.

    make test-clients                    # all suites: a quarter of an hour, and as much again with nothing in the cache
    make test-clients SUITE=pyhive       # one, or several: SUITE="pyhive impyla"

START HERE: suites.py, one row per suite: what is installed, and whose tests are run. environment.py puts each into an
environment of its own under `.clients/`, which git ignores; server.py starts one gateway for all of them. Nothing of
a suite is changed: a plug-in of pytest (inside/in_their_pytest.py) leads `localhost:10000` to the gateway and tells how
each test ended. known/SUITE.toml lists the tests that fail for a reason that is not ours; another failure fails the
run, and so does a listed test that passes. checks/ are tests of ours, run in the environments of tools without a suite.
CI does not run this; it holds the lists and docs/clients/suites.md together (test_known.py).
"""
