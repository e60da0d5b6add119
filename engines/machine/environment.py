"""The environment of child processes: only variables that a program needs to run, and no secrets.

Code in a child, also an engine's own text substitution, can read its environment. Passwords, tokens and keys are in
variables of any name, so this is a list of allowed names.
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
    """Return this process's environment for a child. more: further names, from the administrator's settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name in more or name.startswith(_PREFIXES)
    }
