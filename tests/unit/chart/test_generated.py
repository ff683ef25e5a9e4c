"""The parts of the chart that are written from Python, and files that have to fit others."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from prometheus_client import REGISTRY

from bus import permissions
from commands import installation
from tools.chart import alerts, dashboards, generated
from tools.chart.values import Values
from windowbox.rights import rbac
from windowbox.settings.clustersettings import GrantSettings

ROOT = generated.CHART.parents[2]
KIND = "deploy/compose.kind.yaml"
COMPOSED: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
LET_IN = {
    line.removeprefix("!")
    for line in (ROOT / ".dockerignore").read_text().splitlines()
    if line.startswith("!")
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
LINKS = sorted(one for one in (ROOT / "sandbox" / "shipped").iterdir() if one.is_symlink())


FILES = generated.files()


@pytest.mark.parametrize("name", sorted(FILES))
def test_generated_files_are_current(name: str) -> None:
    assert (generated.CHART / name).read_text() == FILES[name], "run `make generate`"


def test_values_are_the_defaults_of_their_model() -> None:
    values = yaml.safe_load((generated.CHART / "values.yaml").read_text())
    assert values == Values().model_dump(by_alias=True)


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    schema = json.loads(FILES["values.schema.json"])
    objects = {name: one for name, one in schema["$defs"].items() if "properties" in one} | {"": schema}
    assert [name for name, one in objects.items() if one.get("additionalProperties") is not False] == []


def test_settings_of_the_chart_itself_are_no_values() -> None:
    schema: dict[str, Any] = json.loads(FILES["values.schema.json"])
    assert {"nats", "metrics", "probes"}.isdisjoint(schema["$defs"]["Settings"]["properties"])


def test_each_user_of_the_bus_gets_a_password() -> None:
    made = installation.passwords()
    assert made.keys() == permissions.PERMISSIONS.keys()
    assert len({*made.values()}) == len(made)


def test_the_certificate_names_all_servers_and_serves_both_ways() -> None:
    content = installation.server_certificate(["bus", "bus-0.bus-servers"])
    made = x509.load_pem_x509_certificate(content["tls.crt"])
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usages = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == ["bus", "bus-0.bus-servers"]
    assert len(list(usages)) == 2


def test_dashboards_and_alerts_ask_for_metrics_that_exist() -> None:
    known = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    known |= {
        f"{family.name}{suffix}"
        for family in REGISTRY.collect()
        for suffix in ("", "_total", "_bucket", "_count")
    }
    panels = [panel.expression for board in dashboards.DASHBOARDS.values() for panel in board]
    asked = [*panels, *(alert.expression for alert in alerts.ALERTS)]
    assert {name for text in asked for name in re.findall(r"windowbox_\w+", text)} - known == set()


def test_bindings_name_service_accounts() -> None:
    settings = GrantSettings(name="second", service_accounts={"worker": "system/worker"})
    bindings = {one["metadata"]["name"]: one for one in rbac.namespaced("garden", settings)}
    worker = bindings["second-worker-secrets"]
    assert worker["roleRef"]["name"] == "system:second:worker:secrets"
    assert worker["subjects"] == [{"kind": "ServiceAccount", "namespace": "system", "name": "worker"}]
    assert bindings["second-patcher-secrets"]["subjects"][0]["name"] == "system:windowbox:patcher"


@pytest.mark.parametrize(
    "accounts", [{"nobody": "a/b"}, {"worker": "a"}, {"worker": "/b"}, {"worker": "a/b/c"}]
)
def test_malformed_service_accounts_are_refused(accounts: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        GrantSettings(service_accounts=accounts)


def test_in_kind_all_that_reach_the_cluster_are_in_its_network() -> None:
    roles = {"watch", "work", "patch", "admit"}
    reaching = {name for name, one in COMPOSED.items() if one.get("command", [""])[0] in roles}
    kind = yaml.safe_load((ROOT / KIND).read_text())
    assert kind["networks"] == {"kind": {"external": True}}
    assert kind["services"].keys() == reaching
    for service in kind["services"].values():
        assert {*service["networks"]} == {"default", "kind"}  # the bus is in the default one
    assert f"-f {KIND} up" in (ROOT / "docker-compose.yaml").read_text()


def test_every_process_speaks_tls_with_the_bus() -> None:
    ours = [one for one in COMPOSED.values() if "windowbox" in one["image"]]
    assert len(ours) == 5
    urls = {one["environment"]["WINDOWBOX_NATS__URL"] for one in ours}
    assert urls == {"tls://nats:4222", "tls://127.0.0.1:${NATS_PORT:-4222}"}
    assert {one["environment"]["WINDOWBOX_NATS__CA"] for one in ours} == {"/etc/windowbox/nats/ca.crt"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_image_build_gets_every_package(package: str) -> None:
    assert package in LET_IN


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
def test_the_image_build_gets_targets_of_shipped_links(link: Path) -> None:
    assert str(link.resolve().relative_to(ROOT)) in LET_IN
