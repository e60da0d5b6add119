"""Checks of this machine: present, missing, and how to install it."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from engines.adapter import CheckResult
from gateway.catalog.lake.known_catalogs import of_settings
from gateway.cli.client import running_address
from gateway.cli.terminal import database_problem
from gateway.presentation.formatting import counted
from gateway.routing.rules.reading import RulesInvalid, read_rules
from gateway.routing.rules.rules_file import content_of
from gateway.security.access.policy_file import AccessRulesInvalid, read_access_rules
from gateway.security.access.policy_file import content_of as policy_content
from gateway.security.access.policy_service import fetch, rules_in
from gateway.security.authentication import UsersFile, UsersFileInvalid
from gateway.security.documents import DocumentFault
from gateway.server.authentication import KERBEROS_EXTRA, acceptor_of, directory_of
from gateway.server.own_files import exposed, roots_at_fault
from gateway.server.startup import CertificateInvalid
from gateway.settings import Settings
from metastore.database.connection import NewerSchema, make_engine, require_known_schema, sqlite_file
from metastore.database.models import TableRow
from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.requests import answered
from metastore.objects.store import key_of
from selector.wording import mebibytes
from sql.errors import TableUnreadable

MINIMUM_PYTHON = (3, 11)
DATABASE_WAIT_S = 5
CLOCKS_APART_S = 5.0  # from which on a gateway may take another one, that shares its database, for dead
CERTIFICATE_WARNING = dt.timedelta(days=21)
RENEW = "renew the certificate and restart the gateway"
LEAST_FREE_BYTES = 256 << 20  # without which a gateway soon stops
LITTLE_FREE_BYTES = 5 << 30
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "fuse.", "gluster", "lustre", "9p", "afs", "gpfs")
"""Beginnings of names of file systems, as Linux has them in /proc/mounts."""
MOUNTS = Path("/proc/mounts")
SHOWN_TABLES = 5


def examine(settings: Settings) -> list[CheckResult]:
    """Look at everything that a gateway with these settings needs."""
    needs = (*_python(), *_engines(settings), *_home(settings), *_files(settings), *_logins(settings))
    identity = (*_provider(settings), *_directory(settings), *_keytab(settings))
    serving = (*_rules(settings), *_policy(settings), *_certificate(settings), *_ports(settings), *_metastore(settings))
    return [
        *needs,
        *identity,
        *serving,
        *_objects(settings),
        *_memory(settings),
        *_disk(settings),
        *_retention(settings),
    ]


def _python() -> Iterator[CheckResult]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield CheckResult("Python", sys.version_info[:2] >= MINIMUM_PYTHON, version, "install Python 3.11 or newer")


def _engines(settings: Settings) -> Iterator[CheckResult]:
    enabled = list(settings.engines())
    if not enabled:
        remedy = "set duckdb.enabled or spark.enabled in fusion.toml, or install an engine"
        yield CheckResult("Engines", False, "none is enabled: no statement can run", remedy)
    for adapter, section in enabled:
        yield from adapter.findings(section)


def _home(settings: Settings) -> Iterator[CheckResult]:
    parent = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    writable = os.access(parent, os.W_OK)
    yield CheckResult("Home folder", writable, str(settings.home), f"make {parent} writable or choose another --home")
    kind = file_system_of(parent)
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        is_database = sqlite_file(settings.metastore_url) is not None
        why = "SQLite loses data there" if is_database else "results are written and read over the network"
        remedy = "choose a --home on a local disk, or set metastore.url to a PostgreSQL database"
        yield CheckResult(
            "Home folder", False, f"{settings.home} is on a network disk ({kind}): {why}", remedy, is_database
        )


def file_system_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the kind of file system that a folder is on; empty: unknown. mounts: list of what is mounted."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # this is no Linux
        return ""
    whole, kinds = folder.resolve(), {}
    for line in lines:
        _, place, kind, *_ = line.split()
        kinds[Path(place.replace("\\040", " "))] = kind
    holding = [place for place in kinds if whole.is_relative_to(place)]
    return kinds[max(holding, key=lambda place: len(place.parts))] if holding else ""


def _files(settings: Settings) -> Iterator[CheckResult]:
    warnings = exposed(settings)
    if not warnings:
        yield CheckResult("Secrets", True, "no other user of this machine can read them")
    for warning in warnings:
        yield CheckResult("Secrets", False, warning, needed=False)
    for warning in roots_at_fault(settings):
        yield CheckResult("Table roots", False, warning, "correct catalog.roots", needed=False)


def _logins(settings: Settings) -> Iterator[CheckResult]:
    login = settings.authentication
    if login.users_file is None:
        return
    try:
        UsersFile(login.users_file, anonymous=login.anonymous)
    except UsersFileInvalid as error:
        remedy = "make it with: fusion password NAME >> FILE, or correct authentication.users_file"
        yield CheckResult("Users file", False, str(error), remedy)
    else:
        yield CheckResult("Users file", True, str(login.users_file))


def _policy(settings: Settings) -> Iterator[CheckResult]:
    path, opa = settings.access.policy_file, settings.access.opa
    where = opa.url if path is None else str(path)
    try:
        if path is not None:
            rules = read_access_rules(policy_content(path))
        elif opa.url is not None:
            rules = rules_in(fetch(opa))
        else:
            return
    except AccessRulesInvalid as error:
        yield CheckResult("Access policy", False, f"{where}: {error}", "correct it; docs/access.md has an example")
    except DocumentFault as fault:
        remedy = "correct access.opa, or the agent; until then only owners and administrators see anything"
        yield CheckResult("Access policy", False, f"{where}: {fault}", remedy)
    else:
        parts = f"{len(rules.grants)} grants, {len(rules.filters)} filters, {len(rules.masks)} masks"
        yield CheckResult("Access policy", True, f"{where}: {parts}, version {rules.version}")


def _provider(settings: Settings) -> Iterator[CheckResult]:
    oidc = settings.authentication.oidc
    if oidc.issuer is None:
        return
    try:
        from gateway.security.documents import DocumentFault
        from gateway.security.identity.provider import Provider
    except ImportError:
        yield CheckResult("Identity provider", False, "joserfc is missing", "pip install 'fusion-sql-gateway[sso]'")
        return
    try:
        keys = Provider(oidc.issuer, oidc.timeout_s, oidc.ca_file).fetch()
    except DocumentFault as fault:
        remedy = "correct authentication.oidc, or make it reachable from here; until then no token lets anybody in"
        yield CheckResult("Identity provider", False, f"{oidc.issuer}: {fault}", remedy)
    else:
        yield CheckResult("Identity provider", True, f"{oidc.issuer}: {len(keys)} keys")


def _directory(settings: Settings) -> Iterator[CheckResult]:
    ldap = settings.authentication.ldap
    if not ldap.servers:
        return
    try:
        from gateway.security.identity.directory import DirectoryFault

        address = directory_of(ldap).check()
    except ImportError:
        yield CheckResult("Directory", False, "ldap3 is missing", "pip install 'fusion-sql-gateway[sso]'")
    except DirectoryFault as fault:
        remedy = "correct authentication.ldap, or make a server reachable from here; until then its users cannot log in"
        yield CheckResult("Directory", False, str(fault), remedy)
    else:
        yield CheckResult("Directory", True, address)


def _keytab(settings: Settings) -> Iterator[CheckResult]:
    kerberos = settings.authentication.kerberos
    if kerberos.keytab is None:
        return
    try:
        from gateway.security.identity.kerberos import KeytabFault

        acceptor = acceptor_of(kerberos)
    except ImportError:
        yield CheckResult("Keytab", False, "gssapi is missing", KERBEROS_EXTRA)
        return
    for principal in acceptor.principals:
        try:
            acceptor.check(principal)
        except KeytabFault as fault:
            remedy = "correct authentication.kerberos, or add the key to the keytab (kadmin: ktadd -k FILE PRINCIPAL)"
            yield CheckResult("Keytab", False, f"{kerberos.keytab}, {principal}: {fault}", remedy)
        else:
            yield CheckResult("Keytab", True, f"{kerberos.keytab} has a key of {principal}")


def _rules(settings: Settings) -> Iterator[CheckResult]:
    path = settings.rules_file
    if settings.routing.rules is None and not path.exists():
        return
    try:
        rules = read_rules(content_of(path), [adapter.section for adapter, _ in settings.engines()])
    except RulesInvalid as error:
        remedy = "correct it; fusion rules check tells whether it is right"
        yield CheckResult("Routing rules", False, f"{path}: {error}", remedy)
        return
    yield CheckResult("Routing rules", True, f"{path}: {len(rules.rule)} rules")
    for warning in rules.warnings():
        yield CheckResult("Routing rules", False, warning, needed=False)


def _certificate(settings: Settings) -> Iterator[CheckResult]:
    if settings.tls.certificate is None:
        return
    from gateway.server.serve import tls_context

    try:
        context = tls_context(settings.tls)
        assert context is not None
        ends_at = end_of(settings.tls.certificate, context)
    except CertificateInvalid as error:
        yield CheckResult("Certificate", False, str(error), "correct tls.certificate and tls.key")
    except ssl.SSLCertVerificationError as error:
        yield CheckResult("Certificate", False, f"{settings.tls.certificate}: {error.verify_message}", RENEW)
    else:
        ends_soon = ends_at - dt.datetime.now(dt.UTC) < CERTIFICATE_WARNING
        detail = f"{settings.tls.certificate} is valid until {ends_at:%Y-%m-%d %H:%M} UTC"
        yield CheckResult("Certificate", not ends_soon, detail, RENEW, needed=False)


def end_of(certificate: Path, context: ssl.SSLContext) -> dt.datetime:
    """Return the time until which a certificate is valid, as a client reads it in a handshake in memory.

    context: of a server with the certificate. Raises SSLCertVerificationError: it is not valid now.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, whoever signed it
    server, client = context.wrap_bio(to_server, to_client, server_side=True), trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    fields: Any = client.getpeercert()
    return dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(fields["notAfter"]), dt.UTC)


def _ports(settings: Settings) -> Iterator[CheckResult]:
    """Tell which ports another process has; those of the gateway that serves this home are as they should be."""
    running = running_address(settings.home)
    if running is not None:
        yield CheckResult("Gateway", True, f"serves this home at {running}")
        return
    wanted = {"server.port": settings.server.port}
    wanted |= {"hs2.port": settings.hs2.port} if settings.hs2.enabled else {}
    wanted |= {"flight.port": settings.flight.port} if settings.flight.enabled else {}
    for name, port in wanted.items():
        where = f"{settings.server.host}:{port}"
        try:
            _try_port(settings.server.host, port)
        except OSError as error:
            remedy = f"end the process that has it, or set {name}"
            yield CheckResult("Port", False, f"{where} ({name}): {error.strerror}", remedy)
        else:
            yield CheckResult("Port", True, f"{where} ({name}) is free" if port else f"{name} takes a free one")


def _try_port(host: str, port: int) -> None:
    """Take a port and give it back. Raises OSError where that is not possible."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind((host, port))


def _metastore(settings: Settings) -> Iterator[CheckResult]:
    """Tell whether the database answers; one in a file that is not there yet is made at the first start."""
    try:
        url = make_url(settings.metastore_url)
        shown = url.render_as_string(hide_password=True)
        file = sqlite_file(settings.metastore_url)
        if file is not None and not file.exists():
            yield CheckResult("Metastore", True, f"{shown} will be made")
            return
        if url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"connect_timeout": str(DATABASE_WAIT_S)})
        engine = make_engine(url.render_as_string(hide_password=False))
        try:
            with engine.connect() as connection:
                require_known_schema(connection)
                sent_at = dt.datetime.now(dt.UTC)
                there = connection.execute(select(func.now())).scalar_one() if file is None else None
                places = _places_of_tables(connection)
        finally:
            engine.dispose()
    except ArgumentError as error:
        yield CheckResult("Metastore", False, f"metastore.url: {error}", "correct metastore.url")
    except ImportError as error:
        remedy = "pip install 'fusion-sql-gateway[postgresql]'"
        yield CheckResult("Metastore", False, f"{shown}: its driver is not installed: {error}", remedy)
    except NewerSchema as error:
        yield CheckResult("Metastore", False, f"{shown}: {error}")
    except SQLAlchemyError as error:
        remedy = "start the database, or correct metastore.url"
        yield CheckResult("Metastore", False, f"{shown}: {database_problem(error)}", remedy)
    else:
        yield CheckResult("Metastore", True, shown)
        if there is not None:
            yield _clocks(sent_at, there)
        yield from _tables(places, settings)


def _places_of_tables(connection: Connection) -> dict[str, str]:
    """Return the places of the tables on this machine by their names."""
    if not inspect(connection).has_table(TableRow.__tablename__):
        return {}
    rows = connection.execute(select(TableRow.name, TableRow.location).order_by(TableRow.name))
    return {name: location for name, location in rows if location.startswith("/")}


def _tables(places: dict[str, str], settings: Settings) -> Iterator[CheckResult]:
    """Tell which tables cannot be read where they lie."""
    roots = [os.path.realpath(root) for root in (*settings.catalog.roots, settings.warehouse)]
    outside = [name for name, place in places.items() if not any(Path(place).is_relative_to(root) for root in roots)]
    if settings.catalog.roots and outside:
        many = counted(len(outside), "table")
        detail = f"outside of catalog.roots, where nothing is read: {many}, such as {', '.join(outside[:SHOWN_TABLES])}"
        yield CheckResult("Table roots", False, detail, "add their folders to catalog.roots", needed=False)
    gone = [name for name, place in places.items() if not os.path.lexists(place)]
    if gone:
        detail = f"the files of {counted(len(gone), 'table')} are gone, such as {', '.join(gone[:SHOWN_TABLES])}"
        remedy = f"put them back, such as {places[gone[0]]}, or drop the tables"
        yield CheckResult("Tables", False, detail, remedy, needed=False)


def _clocks(here: dt.datetime, there: dt.datetime) -> CheckResult:
    """Compare this machine's clock with the database's."""
    apart_s = abs((there - here).total_seconds())
    detail = f"{apart_s:.1f} s apart from the database's"
    return CheckResult(
        "Clock", apart_s < CLOCKS_APART_S, detail, "let both machines take their time over NTP", needed=False
    )


def _objects(settings: Settings) -> Iterator[CheckResult]:
    """Ask each object store and each catalog of the settings for something."""
    from metastore.lake.resolution import listing  # with it come libraries that no other command needs

    access = settings.object_access
    for name, store in zip(settings.stores, access.stores, strict=True):
        try:
            kind = answered(store, partial(_kind_of_entry, store))
        except OSError as error:
            remedy = f"see the endpoint, the region and the keys of stores.{name}"
            yield CheckResult(f"Store {name}", False, " ".join(str(error).split())[:200], remedy)
        else:
            nothing = "; nothing is there yet" if kind == "NotFound" else ""
            yield CheckResult(f"Store {name}", True, f"{store.prefix} answers{nothing}")
    for catalog in access.catalogs:
        try:
            tables = sum(map(len, listing(catalog).values()))
        except TableUnreadable as error:
            yield CheckResult(f"Catalog {catalog.name}", False, error.message, of_settings(catalog.name))
        else:
            yield CheckResult(f"Catalog {catalog.name}", True, f"{tables} tables")


def _kind_of_entry(store: ObjectStore) -> str:
    return str(store.filesystem.get_file_info(key_of(store.prefix)).type.name)


def _memory(settings: Settings) -> Iterator[CheckResult]:
    wanted = sum(adapter.memory_bytes(section) for adapter, section in settings.engines())
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{mebibytes(wanted)} configured of {mebibytes(has)}"
    remedy = "lower duckdb.memory, duckdb.memory_limit or spark.driver_memory in fusion.toml"
    yield CheckResult("Memory", wanted < has, detail, remedy)


def _disk(settings: Settings) -> Iterator[CheckResult]:
    """Compare the free space with what results may take, or with what is little for any gateway."""
    parent = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free, wanted = shutil.disk_usage(parent).free, int(settings.results.total)
    more = ", more than that" if wanted > free else ""
    detail = f"{mebibytes(free)} free at {settings.home}; results may take {mebibytes(wanted)}{more}"
    remedy = "free some space, lower results.total, or choose another --home"
    is_enough = free >= min(wanted, LITTLE_FREE_BYTES)
    yield CheckResult("Disk", is_enough, detail, remedy, needed=free < LEAST_FREE_BYTES)


def _retention(settings: Settings) -> Iterator[CheckResult]:
    """Tell what results take on the disk, and how long the past is kept."""
    from gateway.execution.spooling.results import Spool

    folder = settings.home / "results"
    sizes = [size for _, size in Spool(folder, limit_bytes=0, row_bytes=0).sizes()] if folder.exists() else []
    results, history = settings.results, settings.history
    detail = (
        f"{len(sizes):,} of at most {results.count:,}, {mebibytes(sum(sizes))} of {mebibytes(int(results.total))}, "
        f"kept for {results.keep_s / 3600:,.0f} h"
    )
    yield CheckResult(
        "Results", sum(sizes) <= int(results.total), detail, "start the gateway, which deletes the oldest"
    )
    limits = f"{history.queries:,} queries, {mebibytes(int(history.bytes))}, {history.keep_s / 86_400:,.0f} days"
    yield CheckResult("History", True, f"at most {limits}")
