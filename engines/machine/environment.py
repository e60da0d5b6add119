"""The environment that child processes get: what a program needs to run, and nothing that somebody keeps secret.

Whatever runs in a child, an engine's own text substitution included, can read its environment. So it is a list of what
is passed on: passwords, tokens and keys stand in variables of any name.
"""

from __future__ import annotations

import os
from collections.abc import Collection

_NAMES = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP LD_LIBRARY_PATH DYLD_LIBRARY_PATH
    XDG_CACHE_HOME XDG_RUNTIME_DIR VIRTUAL_ENV SSL_CERT_FILE SSL_CERT_DIR JAVA_HOME
    HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR HIVE_CONF_DIR KRB5CCNAME KRB5_CONFIG KUBECONFIG
    KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT SPARK_CONF_DIR SPARK_DIST_CLASSPATH SPARK_LOCAL_DIRS
    SPARK_LOCAL_HOSTNAME SPARK_LOG_DIR SPARK_PUBLIC_DNS SPARK_USER HADOOP_USER_NAME
    """.split()
)
_PREFIXES = ("LC_", "PYTHON", "MALLOC_", "COVERAGE_", "COV_CORE_")


def child_environment(more: Collection[str] = ()) -> dict[str, str]:
    """Return this process's environment for a child. more: names that it gets besides, by the administrator's word."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name in more or name.startswith(_PREFIXES)
    }
