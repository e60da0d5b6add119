"""What the documents say is there, and what is there is in the documents."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from engines.errors import EngineError
from gateway import settings
from gateway.cli.main import app
from gateway.cli.setup.reference import function_lines, settings_rows
from gateway.cli.terminal import ExitCode
from gateway.errors import ERRORS
from gateway.http import catalog, catalogs, queries, schedules, statistics, workload
from gateway.http.errors import status_of
from gateway.http.routing import drains, parity, replay, rules
from gateway.presentation.metrics import METRICS, Metric
from gateway.routing.rules.reading import read_rules
from gateway.routing.rules.rules import Estimate, Match
from gateway.settings import Settings
from gateway.statements.command import Kind
from gateway.statements.settings import FIXED, OBEYED
from selector.decision import ReasonCode, RuleAction

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "clients" / "fusion.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
PAGES = {
    str(page.relative_to(ROOT / "docs")): page.read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md"))
}
SAMPLES = ("cluster.md", "sizing.md")
"""Pages whose blocks of TOML are settings files."""


def commands(document: str) -> list[str]:
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", document, flags=re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("row", list(settings_rows(Settings)))
def test_every_setting_is_documented(row: str) -> None:
    assert not row.endswith("|  |"), f"{row} has no docstring"
    assert row in REFERENCE


def test_the_page_of_functions_is_as_it_is_printed() -> None:
    page = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
    assert page.splitlines() == list(function_lines())


ROUTERS = (
    *(queries.router, catalog.router, catalogs.router, statistics.router, schedules.router),
    *(workload.router, drains.router, parity.router, replay.router, rules.router),
)


@pytest.mark.parametrize(
    "route",
    [
        f"{method} {getattr(route, 'path', '')}"
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
    ],
)
def test_every_route_is_documented(route: str) -> None:
    assert f"| `{route}` |" in REFERENCE


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_documented(metric: Metric) -> None:
    assert f"| `{metric.name}` | {metric.kind} | {metric.help} |" in REFERENCE


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in REFERENCE


@pytest.mark.parametrize(
    "code", [code for code in ERRORS if re.search(rf"^\| `{code}` \| \d", REFERENCE, re.MULTILINE)]
)
def test_the_status_of_an_error_is_documented(code: str) -> None:
    assert f"| `{code}` | {status_of(code)} |" in REFERENCE


@pytest.mark.parametrize("kind", EngineError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_what_happens_after_an_engines_error_is_documented(kind: type[EngineError]) -> None:
    yes_no = {True: "yes", False: "no"}
    assert f"| `{kind.code}` | {yes_no[kind.fails_over]} | {yes_no[kind.remembered]} |" in REFERENCE


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_is_documented(code: ReasonCode) -> None:
    assert f"| `{code.value}` |" in REFERENCE


@pytest.mark.parametrize("name", [*(option.name for option in OBEYED), *FIXED])
def test_every_setting_of_a_session_is_documented(name: str) -> None:
    does = FIXED[name].does if name in FIXED else next(each.meaning for each in OBEYED if each.name == name)
    assert f"| `{name}` |" in REFERENCE
    assert does in REFERENCE


def test_every_condition_and_action_of_rules_is_documented() -> None:
    for name in (*Match.model_fields, *Estimate.model_fields, *RuleAction, "deny", *Kind):
        assert re.search(rf"`{name}\b", RULES), name


def test_the_sample_of_rules_and_those_in_the_documents_are_rules() -> None:
    samples = [(ROOT / "deploy" / "rules.toml").read_text(encoding="utf-8")]
    samples += re.findall(r"```toml\n(.*?)```", RULES, flags=re.DOTALL)
    for sample in samples:
        assert list(read_rules(sample.encode(), ("duckdb", "spark")).warnings()) == []


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [line.split()[1] for line in commands(README) if line.startswith("make ")]
    assert len(targets) >= 5
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


COMMANDS = {line for page in (README, *PAGES.values()) for line in commands(page) if line.startswith("fusion ")}


@pytest.mark.parametrize("line", sorted(COMMANDS))
def test_every_fusion_command_in_the_documents_is_one(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    group = get_command(app)
    path = []
    while words and words[0] in getattr(group, "commands", {}):
        path.append(words.pop(0))
        group = group.commands[path[-1]]  # type: ignore[attr-defined]
    assert path, line
    assert CliRunner().invoke(app, [*path, "--help"]).exit_code == 0
    required = [parameter for parameter in group.params if parameter.required]
    assert len(words) >= len(required)


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    assert re.search(rf"^\| {code.value} \| ", COMMAND_LINE, flags=re.MULTILINE)


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_every_command_is_documented(name: str) -> None:
    assert f"`fusion {name}" in COMMAND_LINE


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (group, name)
        for group, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        for name in getattr(command, "commands", ())
    ],
)
def test_every_command_of_a_group_is_documented(group: str, name: str) -> None:
    rows = [line for line in COMMAND_LINE.splitlines() if line.startswith(f"| `fusion {group}")]
    assert any(re.search(rf"\b{name}\b", row) for row in rows)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"(\S+\.md)$", navigation, flags=re.MULTILINE)
    assert sorted(named) == [page for page in sorted(PAGES) if not page.startswith("adr/")]  # the hook adds these


@pytest.mark.e2e
def test_the_site_has_no_broken_links_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    mkdocs = str(Path(sys.executable).with_name("mkdocs"))
    ran = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    loads = re.compile(r"<(?:script|img|link rel=.?(?:stylesheet|icon|preconnect))[^>]*(?:src|href)=\W?(?:https?:)?//")
    for page in pages:
        assert not loads.search(page.read_text(encoding="utf-8")), page
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\W*(?:https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize(
    "sample", [sample for page in SAMPLES for sample in re.findall(r"```toml\n(.*?)```", PAGES[page], flags=re.DOTALL)]
)
def test_settings_in_the_documents_are_settings(sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("FUSION_")]:
        monkeypatch.delenv(name)
    included = re.fullmatch(r'--8<-- "(\S+)"\n', sample)
    text = (ROOT / included[1]).read_text(encoding="utf-8") if included else sample
    for section in set(tomllib.loads(text)) - settings.Settings.model_fields.keys():
        if (ROOT / "deploy" / f"{section}.toml").exists():
            pytest.skip("its engine is not there")
    (tmp_path / settings.FILE_NAME).write_text(text, encoding="utf-8")
    assert settings.load(tmp_path)


@pytest.mark.parametrize(
    "document",
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/README.md", "docs/clients/README.md", "docs/rules.md"],
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_lock_file_carries_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "--index-url" not in lock
    pinned = re.findall(r"^\S+==\S+", lock, flags=re.MULTILINE)
    assert len(pinned) > 50
    assert lock.count("--hash=sha256:") > len(pinned)
