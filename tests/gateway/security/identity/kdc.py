"""A real Kerberos KDC of MIT, on a free port of this machine, with people and services."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gateway.security.identity.slapd import free_port

REALM, OTHER_REALM = "EXAMPLE.COM", "ELSEWHERE.ORG"
HOST = "localhost"
PASSWORDS = {"ann": "correct horse", "joe": "joes word", "Zoe": "zoes word", "etl/worker": "of a program"}
SERVICES = (f"hive/{HOST}", f"HTTP/{HOST}", f"host/{HOST}")
SEARCHED = os.pathsep.join(("/usr/sbin", "/usr/bin", os.environ.get("PATH", "")))
STARTED_WITHIN_S = 20.0
FORGIVING_S = 120
"""Difference of clocks that is forgiven; a busy machine takes its time between a client's message and its check."""
SKEW_S = 2
"""The same with the strict configuration, so that tickets end soon."""


@dataclass(slots=True)
class Kdc:
    """A realm with its server, which may be stopped and started."""

    folder: Path
    realm: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def strict_config(self) -> Path:
        """Configuration that forgives a difference of clocks of ``SKEW_S``."""
        return self.folder / "strict.conf"

    @property
    def keytab(self) -> Path:
        """Keys of the services."""
        return self.folder / "services.keytab"

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }

    def admin(self, *commands: str) -> None:
        """Change the realm's database."""
        text = "\n".join(commands) + "\n"
        self._run("kadmin.local", "-r", self.realm, answer=text)

    def ticket(self, name: str, password: str | None = None, *, life: str = "1h", cache: str = "") -> Path:
        """Log in as ``kinit`` does; returns the cache with the ticket."""
        file = self.folder / (cache or f"cache-{name.replace('/', '-')}-{time.monotonic_ns()}")
        word = PASSWORDS[name] if password is None else password
        self._run("kinit", "-l", life, "-c", str(file), f"{name}@{self.realm}", answer=word + "\n")
        return file

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = [_program("krb5kdc"), "-n", "-r", self.realm]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL)
        until_s = time.monotonic() + STARTED_WITHIN_S
        while True:
            assert self.process.poll() is None, "krb5kdc has ended"
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                assert time.monotonic() < until_s, "krb5kdc does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _run(self, program: str, *words: str, answer: str) -> None:
        ended = subprocess.run(
            [_program(program), *words], input=answer, capture_output=True, text=True, env=self.environment, timeout=60
        )
        assert ended.returncode == 0, (program, ended.stdout, ended.stderr)


@contextmanager
def kdc_in(folder: Path, realm: str = REALM) -> Iterator[Kdc]:
    """Run a new realm. Skips where its programs are not installed."""
    for program in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"):
        _program(program)
    folder.mkdir(parents=True)
    kdc = Kdc(folder, realm, free_port())
    for file, skew_s in ((kdc.config, FORGIVING_S), (kdc.strict_config, SKEW_S)):
        file.write_text(_configuration(kdc, skew_s), encoding="utf-8")
    (folder / "kdc.conf").write_text(
        f"""[kdcdefaults]
    kdc_listen = 127.0.0.1:{kdc.port}
    kdc_tcp_listen = 127.0.0.1:{kdc.port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        supported_enctypes = aes256-cts:normal
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
""",
        encoding="utf-8",
    )
    kdc._run("kdb5_util", "-r", realm, "-P", "master", "create", "-s", answer="")
    people = [f'addprinc -pw "{password}" {name}' for name, password in PASSWORDS.items()]
    services = [f"addprinc -randkey {name}" for name in SERVICES]
    kdc.admin(*people, *services, f"ktadd -k {kdc.keytab} {' '.join(SERVICES)}")
    kdc.start()
    try:
        yield kdc
    finally:
        kdc.stop()


def _configuration(kdc: Kdc, skew_s: int) -> str:
    return f"""[libdefaults]
    default_realm = {kdc.realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    clockskew = {skew_s}
[realms]
    {kdc.realm} = {{
        kdc = 127.0.0.1:{kdc.port}
    }}
[domain_realm]
    localhost = {kdc.realm}
"""


def _program(name: str) -> str:
    program = shutil.which(name, path=SEARCHED)
    if program is None:
        pytest.skip(f"{name} is not installed: apt-get install krb5-kdc krb5-admin-server krb5-user")
    return program
