"""Logins of browsers by a real provider: the flow by hand, what attackers try, its end, and a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import pytest

from gateway.errors import IdentityProviderUnavailable
from gateway.http.requests.browsers import SESSION, UNDER_WAY
from gateway.security.authentication import Anonymous, user_line
from gateway.security.identity.browser_login import local_page
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.identity.settings import OidcSettings
from gateway.security.principals import Role
from gateway.server.app import create_app
from gateway.server.authentication import authenticator_of, browser_login_of
from gateway.settings import AuthenticationSettings, ServerSettings
from metastore.store import Metastore
from tests.browser import ARGUMENTS, CHROMIUM, NO_CHROMIUM
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import scripted_gateway
from tests.gateway.security.identity.provider import ANN, AUDIENCE, CLIENT, SECRET, OidcProvider, running
from tests.gateway.security.identity.slapd import free_port
from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e
HTML = {"Accept": "text/html,*/*;q=0.8"}
FOUND = (302, 303)
MOST_STEPS = 12
ROOT = ("root", "right")


@dataclass(frozen=True, slots=True)
class House:
    """A gateway whose browsers log in at a provider."""

    url: str
    provider: OidcProvider
    users: Path
    gateway: Any
    browsers: ExitStack

    def browser(self) -> httpx.Client:
        return self.browsers.enter_context(httpx.Client(headers=HTML, timeout=30))

    def logged_in(self, page: str = "/dashboard") -> httpx.Client:
        """Return a browser after the whole way."""
        browser = self.browser()
        shown = through(browser, browser.get(self.url + page))
        assert str(shown.url) == self.url + page, shown.text
        return browser


def through(browser: httpx.Client, reply: httpx.Response) -> httpx.Response:
    """Follow redirects by hand, and fill in the forms of the provider, as a person does."""
    for _ in range(MOST_STEPS):
        if reply.status_code not in FOUND and "/interaction/" not in str(reply.url):
            return reply
        reply = step(browser, reply)
    raise AssertionError(f"the way to {reply.url} does not end")


@contextmanager
def house_of(
    provider: OidcProvider,
    folder: Path,
    *,
    anonymous: Anonymous = Anonymous.NEVER,
    is_public: bool = False,
    **oidc: Any,
) -> Iterator[House]:
    users = folder / "users"
    users.write_text(user_line(*ROOT, Role.ADMIN), encoding="utf-8")
    known = {"client_id": CLIENT, "client_secret": "" if is_public else SECRET, "clock_skew_s": 0.0, **oidc}
    authentication = AuthenticationSettings(
        users_file=users,
        anonymous=anonymous,
        default_role=Role.READER,
        group_roles={"analysts": Role.WRITER},
        oidc=OidcSettings(issuer=provider.issuer, audience=(AUDIENCE,), username_claim="preferred_username", **known),
    )
    scripted = scripted_gateway(folder / "home", authentication=authentication)
    with serving(create_app(scripted.gateway)) as client, ExitStack() as browsers:
        url = str(client.base_url).rstrip("/")
        provider.control(
            claims=ANN,
            ttl_s=600,
            is_public=is_public,
            redirect_uris=[f"{url}/login/callback"],
            post_logout_redirect_uris=[f"{url}/login/out"],
        )
        yield House(url, provider, users, scripted.gateway, browsers)


@pytest.fixture
def house(provider: OidcProvider, tmp_path: Path) -> Iterator[House]:
    with house_of(provider, tmp_path) as served:
        yield served


@pytest.mark.parametrize("is_public", [False, True])
def test_a_person_logs_in_and_comes_to_the_page(provider: OidcProvider, tmp_path: Path, is_public: bool) -> None:
    with house_of(provider, tmp_path, is_public=is_public) as house:
        browser = house.browser()
        first = browser.get(f"{house.url}/dashboard/queries?state=RUNNING")
        assert first.status_code == 303
        sent = browser.get(first.headers["Location"])
        asked = dict(parse_qsl(urlsplit(sent.headers["Location"]).query))
        assert (asked["client_id"], asked["code_challenge_method"]) == (CLIENT, "S256")
        assert asked["redirect_uri"] == f"{house.url}/login/callback"
        assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) >= 43

        shown = through(browser, sent)
        assert (shown.status_code, str(shown.url)) == (200, f"{house.url}/dashboard/queries?state=RUNNING")
        assert "ann" in shown.text
        assert "Log out" in shown.text
        asked_for = browser.post(f"{house.url}/v1/queries", json={"sql": "SELECT 1"}, headers={"Origin": house.url})
        record = house.gateway.metastore.queries.get(asked_for.json()["id"])
        assert (record.user, record.authenticated) == ("ann", True)


def test_the_session_cookie_is_for_this_gateway_alone(house: House) -> None:
    browser = house.browser()
    reply = browser.get(f"{house.url}/dashboard")
    cookies = []
    for _ in range(MOST_STEPS):
        if reply.status_code not in FOUND and "/interaction/" not in str(reply.url):
            break
        reply = step(browser, reply)
        if str(reply.url).startswith(house.url):
            cookies += reply.headers.get_list("set-cookie")
    (session,) = [cookie for cookie in cookies if cookie.startswith(f"{SESSION}=")]
    attributes = {part.strip().partition("=")[0].lower() for part in session.split(";")}
    assert {"httponly", "samesite", "path", "max-age"} <= attributes
    assert "domain" not in attributes
    assert "samesite=lax" in session.lower()
    value = session.partition("=")[2].partition(";")[0]
    with house.gateway.metastore._engine.connect() as connection:
        rows = str(connection.exec_driver_sql("SELECT * FROM driver_sessions").all())
    assert "ann" in rows
    assert value not in rows


def step(browser: httpx.Client, reply: httpx.Response) -> httpx.Response:
    """Go one step of the way."""
    if reply.status_code in FOUND:
        return browser.get(str(reply.url.join(reply.headers["Location"])))
    action = re.search(r'action="([^"]+)"', reply.text)
    prompt = re.search(r'name="prompt" value="(\w+)"', reply.text)
    assert action and prompt
    return browser.post(
        str(reply.url.join(unescape(action[1]))), data={"prompt": prompt[1], "login": "ann", "password": "any"}
    )


def test_a_server_with_tls_has_secure_cookies_of_its_host(provider: OidcProvider, tmp_path: Path) -> None:
    with house_of(provider, tmp_path) as house:
        server = ServerSettings(public_url="https://sql.example.com/")
        house.gateway.settings = house.gateway.settings.model_copy(update={"server": server})
        reply = house.browser().get(f"{house.url}/login?next=/dashboard/sql")
        assert "redirect_uri=https%3A%2F%2Fsql.example.com%2Flogin%2Fcallback" in reply.headers["Location"]
        cookie = reply.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{UNDER_WAY}=")
        assert "; secure" in cookie.lower()
        plain = {"Cookie": f"{SESSION}=from-another-host"}
        assert house.browser().get(f"{house.url}/dashboard", headers=plain).status_code == 303


def callback(house: House, browser: httpx.Client) -> str:
    """Go the way up to the provider's answer; return its address."""
    reply = browser.get(f"{house.url}/dashboard")
    for _ in range(MOST_STEPS):
        if reply.status_code in FOUND and "/login/callback" in reply.headers["Location"]:
            return str(reply.headers["Location"])
        reply = step(browser, reply)
    raise AssertionError("the provider does not answer")


def changed(address: str, **parameters: str) -> str:
    fields = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    return f"{address.partition('?')[0]}?{urlencode(fields | parameters)}"


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"state": "another"}, "not to a login that this browser has begun"),
        ({"code": "invented"}, "does not take the code"),
        ({"iss": "https://evil.example"}, "another identity provider"),
        ({"code": "", "error": "access_denied"}, "access_denied"),
        ({"code": "", "error": "<script>alert(1)</script>"}, "&lt;script&gt;"),
    ],
)
def test_another_answer_lets_nobody_in(house: House, parameters: dict[str, str], why: str) -> None:
    browser = house.browser()
    answer = callback(house, browser)
    reply = browser.get(changed(answer, **parameters))
    assert reply.status_code == 401
    assert why in reply.text
    assert SESSION not in browser.cookies
    assert "<script>alert" not in reply.text


def test_an_answer_counts_in_its_own_browser_and_once(house: House) -> None:
    browser = house.browser()
    answer = callback(house, browser)
    assert house.browser().get(answer).status_code == 401  # as in a link that an attacker sends
    assert browser.get(answer).status_code == 303
    assert browser.get(answer).status_code == 401


def test_a_code_of_another_login_is_refused(house: House) -> None:
    """PKCE and the nonce: a code that was stolen from another browser is of no use."""
    stolen = parse_qs(urlsplit(callback(house, house.browser())).query)["code"][0]
    browser = house.browser()
    reply = browser.get(changed(callback(house, browser), code=stolen))
    assert (reply.status_code, SESSION in browser.cookies) == (401, False)


@pytest.mark.parametrize(
    "page",
    [
        *("https://evil.example/", "//evil.example", "/\\evil.example", "/dashboard\\@evil.example", "javascript:x"),
        *("/dashboard/../v1/queries", "/v1/queries", "/dashboardx", "/dashboard/\nx", "/dashboard#@evil.example", ""),
        *("/dashboard/" + "x" * 4_000, "@evil.example", "/dashboard@evil.example"),
    ],
)
def test_only_pages_of_the_dashboard_follow_a_login(page: str) -> None:
    assert local_page(page) == "/dashboard"


def test_pages_follow_a_login_with_their_query(house: House) -> None:
    for page in ("/dashboard", "/dashboard/sql", "/dashboard/queries?text=a%2Fb&state=RUNNING"):
        assert local_page(page) == page
    shown = through(browser := house.browser(), browser.get(f"{house.url}/login?next=https://evil.example/"))
    assert str(shown.url) == f"{house.url}/dashboard"


def test_a_cookie_alone_changes_nothing(house: House) -> None:
    """Requests that another page could send: without an origin, or with its own."""
    browser = house.logged_in()
    body = {"sql": "SELECT 1"}
    for headers in ({}, {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for path in ("/v1/queries", "/logout", "/dashboard/sql", "/dashboard/engines/duckdb/drain"):
            reply = browser.post(house.url + path, json=body, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "CROSS_SITE_REQUEST"), (path, headers)
        assert browser.delete(f"{house.url}/v1/queries/x", headers=headers).status_code == 403
    assert browser.get(f"{house.url}/v1/queries").is_success
    assert browser.post(f"{house.url}/v1/queries", json=body, auth=ROOT).is_success  # a login of its own


def test_logging_out_ends_the_session_everywhere(house: House) -> None:
    browser = house.logged_in()
    copied = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    assert httpx.get(f"{house.url}/v1/queries", headers=copied).is_success
    reply = browser.post(f"{house.url}/logout", headers={"Origin": house.url})
    assert reply.status_code == 200
    (at_provider,) = re.findall(r'content="0; url=([^"]+)"', reply.text)
    ended = browser.get(unescape(at_provider))
    assert ended.is_success, ended.text
    assert f"{house.url}/login/out" in unescape(at_provider).replace("%3A", ":").replace("%2F", "/")
    assert SESSION not in browser.cookies
    refused = httpx.get(f"{house.url}/v1/queries", headers=copied)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "LOGIN_EXPIRED")
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")  # browsers ask for no password then
    assert browser.get(f"{house.url}/login/out").is_success


def test_a_session_ends_with_its_user(house: House) -> None:
    browser = house.logged_in()
    house.users.write_text(f"{user_line(*ROOT, Role.ADMIN)}\n{user_line('ann', 'x')}\n", encoding="utf-8")
    assert browser.get(f"{house.url}/v1/queries").status_code == 401
    assert browser.get(f"{house.url}/dashboard").status_code == 303


def test_a_session_ends_with_its_token(provider: OidcProvider, tmp_path: Path) -> None:
    with house_of(provider, tmp_path) as house:
        provider.control(ttl_s=5)  # long enough for a login where there are few processors
        browser = house.logged_in()
        copied = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
        wait_until(lambda: httpx.get(f"{house.url}/v1/queries", headers=copied).status_code == 401, "it ends")


def test_a_session_can_be_given_a_longer_life(provider: OidcProvider, tmp_path: Path) -> None:
    with house_of(provider, tmp_path, session_s=3_600.0) as house:
        provider.control(ttl_s=2)
        house.logged_in()
        with house.gateway.metastore._engine.connect() as connection:
            (state,) = connection.exec_driver_sql("SELECT state FROM driver_sessions").one()
        last = house.gateway.metastore.logins.last("ann")
        assert last is not None
        assert f"{last.expires_at:.0f}"[:9] in str(state)


def test_passwords_and_programs_are_asked_as_before(house: House) -> None:
    for headers, path in (({}, "/dashboard"), (HTML, "/v1/queries"), (HTML, "/dashboard?login=password")):
        reply = httpx.get(house.url + path, headers=headers)
        assert (reply.status_code, reply.headers["WWW-Authenticate"][:5]) == (401, "Basic")
    assert httpx.get(f"{house.url}/dashboard", headers=HTML, auth=ROOT).is_success
    assert httpx.get(f"{house.url}/dashboard", headers=HTML, auth=("root", "wrong")).status_code == 401
    assert httpx.post(f"{house.url}/dashboard/sql", headers=HTML).status_code == 401


def test_pages_without_a_login_have_their_style(house: House) -> None:
    """A style sheet that is refused would have the browser ask for a password."""
    shown = house.browser().get(f"{house.url}/login/out")
    parts = re.findall(r'(?:href|src)="(/dashboard/static/[^"]+)"', shown.text)
    assert parts
    assert {httpx.get(house.url + part).status_code for part in parts} == {200}
    for path, status in (("none", 404), ("../sql", 401), ("%2e%2e/sql", 404), ("a/b", 404)):
        assert httpx.get(f"{house.url}/dashboard/static/{path}").status_code == status, path
    assert httpx.post(f"{house.url}/dashboard/static/style.css").status_code == 405


def test_guests_find_a_way_to_log_in(provider: OidcProvider, tmp_path: Path) -> None:
    with house_of(provider, tmp_path, anonymous=Anonymous.LOOPBACK) as house:
        browser = house.browser()
        shown = browser.get(f"{house.url}/dashboard/sql")
        (address,) = re.findall(r'href="(/login[^"]+)"', shown.text)
        shown = through(browser, browser.get(house.url + unescape(address)))
        assert str(shown.url) == f"{house.url}/dashboard/sql"
        assert "Log out" in shown.text


def test_without_a_client_there_is_no_such_login(provider: OidcProvider, tmp_path: Path) -> None:
    with house_of(provider, tmp_path, client_id=None) as house:
        reply = house.browser().get(f"{house.url}/dashboard")
        assert (reply.status_code, reply.headers["WWW-Authenticate"][:5]) == (401, "Basic")
        assert httpx.get(f"{house.url}/dashboard/static/style.css").status_code == 401
        for path in ("/login", "/login/callback", "/login/out"):
            assert httpx.get(house.url + path, auth=ROOT).status_code == 404
        shown = httpx.get(f"{house.url}/dashboard", auth=ROOT)
        assert "Log in" not in shown.text
        assert "Log out" not in shown.text


def test_a_provider_that_is_down_is_said_on_a_page(provider_folder: Path, tmp_path: Path) -> None:
    with ExitStack() as provider_runs:
        provider = provider_runs.enter_context(running(provider_folder))
        with house_of(provider, tmp_path) as house:
            browser, session = house.browser(), house.logged_in()
            answer = callback(house, browser)
            provider_runs.close()
            reply = browser.get(answer)
            assert (reply.status_code, SESSION in browser.cookies) == (503, False)
            assert "identity provider does not answer" in reply.text
            assert session.get(f"{house.url}/dashboard").is_success  # it goes on
            logged_out = session.post(f"{house.url}/logout", headers={"Origin": house.url})
            assert logged_out.is_success
            assert session.get(f"{house.url}/dashboard").status_code == 303


def test_nobody_waits_long_for_a_provider_that_never_was(tmp_path: Path) -> None:
    settings = OidcSettings(issuer=f"http://127.0.0.1:{free_port()}", audience=(AUDIENCE,), client_id=CLIENT)
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        accounts = ServiceAccountSource(metastore.service_accounts)
        authenticator = authenticator_of(AuthenticationSettings(oidc=settings), metastore.logins, accounts)
        browser_login = browser_login_of(settings, authenticator, metastore.driver_sessions)
    assert browser_login is not None
    for _ in range(2):  # the second one asks nobody
        with pytest.raises(IdentityProviderUnavailable, match="does not answer"):
            browser_login.begin("http://127.0.0.1", "/dashboard")
    assert browser_login.logout_address("http://127.0.0.1") is None


def test_two_gateways_have_one_session(provider: OidcProvider, tmp_path: Path) -> None:
    """Over one metastore, as of several gateways: each finds the session, and its end."""
    with house_of(provider, tmp_path) as house:
        browser = house.logged_in()
        settings, metastore = house.gateway.settings.authentication, house.gateway.metastore
        other = browser_login_of(
            settings.oidc,
            authenticator_of(settings, metastore.logins, house.gateway.accounts),
            metastore.driver_sessions,
        )
        assert other is not None
        user = other.user_of(browser.cookies[SESSION], "127.0.0.1")
        assert (user.name, user.role, user.groups) == ("ann", Role.WRITER, frozenset(ANN["groups"]))
        other.end(browser.cookies[SESSION], user)
        assert browser.get(f"{house.url}/dashboard").status_code == 303


def test_a_session_is_one_at_gateways_of_one_postgresql(
    provider: OidcProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "ANONYMOUS": "never",
        "OIDC__ISSUER": provider.issuer,
        "OIDC__AUDIENCE": f'["{AUDIENCE}"]',
        "OIDC__USERNAME_CLAIM": "preferred_username",
        "OIDC__CLIENT_ID": CLIENT,
        "OIDC__CLIENT_SECRET": SECRET,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"FUSION_AUTHENTICATION__{name}", value)
    with postgresql() as server, ExitStack() as stack:
        urls = []
        for name in ("one", "other"):
            served = Served(tmp_path / name, server.url)
            stack.callback(served.kill)
            urls.append(str(served.http.base_url).rstrip("/"))
        provider.control(claims=ANN, redirect_uris=[f"{url}/login/callback" for url in urls])
        browser = stack.enter_context(httpx.Client(headers=HTML, timeout=60))
        one, other = urls
        assert str(through(browser, browser.get(f"{one}/dashboard")).url) == f"{one}/dashboard"
        assert "ann" in browser.get(f"{other}/dashboard").text
        asked = browser.post(
            f"{other}/v1/queries", json={"sql": "SELECT 42 AS answer", "wait_s": 60}, headers={"Origin": other}
        )
        assert asked.json()["rows"] == [[42]]
        assert browser.get(f"{one}/v1/queries/{asked.json()['id']}/result").is_success  # by way of the other one
        assert browser.post(f"{other}/logout", headers={"Origin": other}).is_success
        assert browser.get(f"{one}/dashboard").status_code == 303


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_with_a_real_browser(house: House) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="a real browser needs the package playwright")
    with (
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        page = browser.new_page()
        page.goto(f"{house.url}/dashboard/sql")
        page.locator("input[name=login]").fill("ann")
        page.locator("input[name=password]").fill("any")
        page.locator("button[type=submit]").click()
        page.locator("button[type=submit]").click()  # consent
        page.wait_for_url(f"{house.url}/dashboard/sql")
        playwright.expect(page.get_by_text("ann", exact=True)).to_be_visible()
        page.goto(f"{house.url}/dashboard/engines")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{house.provider.issuer}/**")
        page.locator("button[name=logout]").click()
        page.wait_for_url(f"{house.url}/login/out**")
        playwright.expect(page.get_by_role("heading", name="Logged out")).to_be_visible()
        page.goto(f"{house.url}/dashboard")
        page.locator("input[name=login]").wait_for()
