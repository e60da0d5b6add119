"""The chart: what it renders is valid for Kubernetes, locked down, and what the gateway takes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import load
from tests.deploy.charts import ChartError, rendered
from tests.gateway.server.deploy_files import DEPLOY, ROOT

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="Kubernetes' schemas come with this package")

CHART = DEPLOY / "helm"
VERSIONS = ("1.25", "1.29", "1.33", "1.36")
NEEDED = {"image": {"repository": "registry.example/fusion"}, "users": {"secretName": "fusion-users"}}
EVERYTHING: dict[str, Any] = {
    **NEEDED,
    "image": {"repository": "registry.example/fusion", "pullSecrets": [{"name": "registry-login"}]},
    "replicas": 3,
    "tls": {"secretName": "fusion-tls"},
    "metastore": {"secretName": "fusion-metastore"},
    "environment": {"secretName": "fusion-environment"},
    "hosts": ["sql.example.com", "sql.example.org"],
    "service": {"annotations": {"example.com/internal": "true"}},
    "storage": {"className": "fast"},
    "tables": {
        "volumes": [{"name": "lake", "persistentVolumeClaim": {"claimName": "lake"}}],
        "mounts": [{"name": "lake", "mountPath": "/data", "readOnly": True}],
    },
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}]},
    "serviceMonitor": {"enabled": True, "secretName": "fusion-metrics", "labels": {"release": "prometheus"}},
    "podAnnotations": {"example.com/owner": "data"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "sql", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
GIB = 1 << 30


def manifests(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return rendered(CHART, "sql", "analytics", values)


def only(kind: str, values: Mapping[str, Any], name: str = "sql") -> dict[str, Any]:
    chosen = [one for one in manifests(values) if one["kind"] == kind and one["metadata"]["name"] == name]
    assert len(chosen) == 1
    return chosen[0]


def container(values: Mapping[str, Any]) -> dict[str, Any]:
    (only_one,) = only("StatefulSet", values)["spec"]["template"]["spec"]["containers"]
    return dict(only_one)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [NEEDED, EVERYTHING], ids=["needed", "everything"])
def test_manifests_are_valid(values: Mapping[str, Any], version: str) -> None:
    kinds = set()
    for manifest in manifests(values):
        kinds.add(manifest["kind"])
        if manifest["kind"] != "ServiceMonitor":  # of Prometheus' operator, which Kubernetes has no schema of
            kubernetes_validate.validate(manifest, version, strict=True)
    extra = {"ServiceMonitor"} if values is EVERYTHING else set()
    assert kinds == {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "Pod"} | extra


def test_a_wrong_manifest_would_be_refused() -> None:
    wrong = only("StatefulSet", NEEDED)
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "image.repository is needed"),
        ({"image": NEEDED["image"]}, "users.secretName is needed"),
        ({**NEEDED, "serviceMonitor": {"enabled": True}}, "serviceMonitor.secretName is needed"),
    ],
)
def test_what_has_no_default_is_asked_for(values: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ChartError, match=words):
        manifests(values)


def test_nobody_comes_without_a_login() -> None:
    variables = {variable["name"]: variable.get("value") for variable in container(NEEDED)["env"]}
    assert variables["FUSION_AUTHENTICATION__ANONYMOUS"] == "never"
    assert variables["FUSION_AUTHENTICATION__USERS_FILE"] == "/etc/fusion/users/users"


@pytest.mark.parametrize("values", [NEEDED, EVERYTHING], ids=["needed", "everything"])
def test_the_gateway_takes_its_settings(
    values: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = only("ConfigMap", values)["data"]["fusion.toml"]
    (tmp_path / "fusion.toml").write_text(text, encoding="utf-8")
    for variable in container(values)["env"]:
        if variable["name"].startswith("FUSION_") and variable["name"] != "FUSION_HOME":
            monkeypatch.setenv(variable["name"], variable.get("value", "postgresql+psycopg://fusion@db/fusion"))
    settings = load(tmp_path)
    ports = {port["name"]: port["containerPort"] for port in container(values)["ports"]}
    assert (settings.server.port, settings.hs2.port, settings.flight.port) == (8650, 10000, 32010)
    assert ports == {"http": 8650, "members": settings.members.port, "hiveserver2": 10000, "flight": 32010}
    assert {"sql", "sql.analytics.svc", *values.get("hosts", ())} <= set(settings.server.hosts)
    assert tomllib.loads(text)["logging"]["format"] == "json"


def test_its_memory_fits_into_the_pod(tmp_path: Path) -> None:
    (tmp_path / "fusion.toml").write_text(only("ConfigMap", NEEDED)["data"]["fusion.toml"], encoding="utf-8")
    configured = sum(adapter.memory_bytes(section) for adapter, section in load(tmp_path).engines())
    resources = container(NEEDED)["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == "9Gi"
    assert configured + 2 * GIB <= 9 * GIB


@pytest.mark.parametrize("secret", ["", "fusion-tls"])
def test_probes_speak_what_the_gateway_speaks(secret: str) -> None:
    values = {**NEEDED, "tls": {"secretName": secret}}
    probes = [container(values)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
    assert {probe["scheme"] for probe in probes} == {"HTTPS" if secret else "HTTP"}


def test_pods_are_locked_down() -> None:
    pod = only("StatefulSet", NEEDED)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    own = container(NEEDED)
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in own["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/fusion", "/tmp"}  # noqa: S108 - a mount of the pod


def test_another_settings_file_starts_new_pods() -> None:
    def checksum(values: Mapping[str, Any]) -> str:
        return str(only("StatefulSet", values)["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert checksum(NEEDED) != checksum({**NEEDED, "settings": "[duckdb]\nworkers = 2\n"})


def test_the_chart_has_the_version_of_the_package() -> None:
    import yaml

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"], values["image"]["tag"]) == (version, version, version)
