"""The files for Docker Compose: the variant for kind fits the first file, and what that file says of it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tools.chart.generated import CHART

ROOT = CHART.parents[2]
KIND = "deploy/compose.kind.yaml"


@pytest.fixture
def first() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return found


@pytest.fixture
def kind() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / KIND).read_text())
    return found


def test_the_variant_for_kind_changes_services_that_exist(
    first: dict[str, Any], kind: dict[str, Any]
) -> None:
    assert kind["services"].keys() <= first["services"].keys()
    assert kind["networks"] == {"kind": {"external": True}}


def test_all_that_reach_the_cluster_are_in_the_network_of_kind(
    first: dict[str, Any], kind: dict[str, Any]
) -> None:
    reaching = {
        name
        for name, one in first["services"].items()
        if one.get("command", [""])[0] in {"watch", "work", "patch", "admit"}
    }
    assert kind["services"].keys() == reaching
    for service in kind["services"].values():
        assert {*service["networks"]} == {"default", "kind"}  # the bus is in the default one


def test_the_first_file_names_the_variant() -> None:
    assert f"-f {KIND} up" in (ROOT / "docker-compose.yaml").read_text()


def test_every_process_speaks_tls_with_the_bus(first: dict[str, Any]) -> None:
    ours = [one for one in first["services"].values() if "windowbox" in one["image"]]
    assert len(ours) == 5
    urls = {one["environment"]["WINDOWBOX_NATS__URL"] for one in ours}
    assert urls == {"tls://nats:4222", "tls://127.0.0.1:${NATS_PORT:-4222}"}
    assert {one["environment"]["WINDOWBOX_NATS__CA"] for one in ours} == {"/etc/windowbox/nats/ca.crt"}
