"""A real OpenLDAP server, with people and nested groups, on free ports of this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import ldap3
import pytest
from ldap3.core.exceptions import LDAPException

SUFFIX = "dc=example,dc=com"
PEOPLE, GROUPS = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"
ADMIN, SERVICE = f"cn=admin,{SUFFIX}", f"cn=fusion,{SUFFIX}"
PASSWORDS = {"Ann": "correct horse", "joe": "jöes wört", "o'(bri*en)": "x,y=z", "eve": "evening"}
ADMINS, SERVICES = "of the administrator", "of the service"
STARTED_WITHIN_S = 10.0
NESTED = {  # groups by their members
    "analysts": ("uid=Ann,{people}", "uid=joe,{people}"),
    "data": ("cn=analysts,{groups}",),
    "company": ("cn=data,{groups}", "cn=circle,{groups}"),
    "circle": ("cn=company,{groups}",),
    "others": ("uid=eve,{people}",),
}


@dataclass(frozen=True, slots=True)
class Slapd:
    """A running server."""

    process: subprocess.Popen[bytes]
    plain: str
    """Its address without encryption, with StartTLS if it has a certificate."""
    tls: str
    """Its address with encryption; empty: it has no certificate."""

    def admin(self) -> ldap3.Connection:
        """Return a connection that may change everything."""
        return ldap3.Connection(ldap3.Server(self.plain), ADMIN, ADMINS, auto_bind=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def slapd_in(
    folder: Path, *, port: int = 0, certificate: Path | None = None, key: Path | None = None
) -> Iterator[Slapd]:
    """Run a server on a folder; a new one has the people and groups. Skips where there is none."""
    program = shutil.which("slapd", path="/usr/sbin:/usr/libexec:/usr/bin")
    schema = Path("/etc/ldap/schema")
    if program is None or not schema.is_dir():
        pytest.skip("slapd is not installed: apt-get install slapd")
    data = folder / "data"
    is_new = not data.exists()
    data.mkdir(parents=True, exist_ok=True)
    tls = [f"TLSCertificateFile {certificate}", f"TLSCertificateKeyFile {key}"] if certificate and key else []
    config = [
        *(f"include {schema / name}.schema" for name in ("core", "cosine", "inetorgperson")),
        *(
            f"pidfile {folder / 'pid'}",
            *tls,
            "modulepath /usr/lib/ldap",
            "moduleload back_mdb",
            "allow bind_anon_cred bind_anon_dn",
        ),
        *("database mdb", f"suffix {SUFFIX}", f"rootdn {ADMIN}", f"rootpw {ADMINS!r}".replace("'", '"')),
        *(f"directory {data}", "maxsize 16777216"),
        "access to attrs=userPassword by anonymous auth by * none",
        f'access to * by dn.exact="{SERVICE}" read by self read by * none',
    ]
    config_file = folder / "slapd.conf"
    config_file.write_text("\n".join(config) + "\n", encoding="utf-8")
    addresses = [f"ldap://127.0.0.1:{port or free_port()}", f"ldaps://127.0.0.1:{free_port()}"]
    served = addresses if certificate else addresses[:1]
    process = subprocess.Popen(
        [program, "-f", str(config_file), "-h", " ".join(served), "-d", "0"], stderr=subprocess.DEVNULL
    )
    try:
        server = Slapd(process, addresses[0], addresses[1] if certificate else "")
        until_s = time.monotonic() + STARTED_WITHIN_S
        while True:
            with (
                suppress(LDAPException, OSError),
                socket.create_connection(("127.0.0.1", int(addresses[0].rpartition(":")[2]))),
            ):
                connection = server.admin()
                break
            assert process.poll() is None, "slapd has ended"
            assert time.monotonic() < until_s, "slapd does not answer"
            time.sleep(0.02)
        if is_new:
            _fill(connection)
        connection.unbind()
        yield server
    finally:
        process.kill()
        process.wait()


def _fill(connection: ldap3.Connection) -> None:
    def add(dn: str, kind: str | list[str], **attributes: object) -> None:
        assert connection.add(dn, kind, attributes), connection.result

    add(SUFFIX, "domain", dc="example")
    for unit in (PEOPLE, GROUPS):
        add(unit, "organizationalUnit", ou=unit.split(",")[0].removeprefix("ou="))
    add(SERVICE, ["applicationProcess", "simpleSecurityObject"], cn="fusion", userPassword=SERVICES)
    for name, password in PASSWORDS.items():
        rdn = ldap3.utils.dn.escape_rdn(name)
        add(f"uid={rdn},{PEOPLE}", "inetOrgPerson", uid=name, cn=name, sn=name, userPassword=password)
    for group, members in NESTED.items():
        of_group = [member.format(people=PEOPLE, groups=GROUPS) for member in members]
        add(f"cn={group},{GROUPS}", "groupOfNames", cn=group, member=of_group)


def certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Make a certificate that only trusts itself, and its key. name: of the machine, or its address."""
    certificate, key = folder / "server.pem", folder / "server.key"
    kind = "IP" if name[0].isdigit() else "DNS"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={kind}:{name}", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
