"""The second Seed of a landscape: its Gardenlet, and what its sandbox takes from the first."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.nodes import addresses
from sandbox.nodes.addresses import Plan
from sandbox.options import Options
from sandbox.servers import ranges
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.certificates import Pair
from sandbox.state import State
from tools.gardener import base, landscape
from tools.gardener.base import Base

FACTS = {"gardener": "1.150.0", "pods": "198.18.16.0/20", "services": "250.0.0.0/16", "cluster": "a3ViZQ=="}


@pytest.mark.parametrize(("seed", "visible"), [("local", True), ("local2", False)])
def test_a_gardenlet_registers_its_seed(seed: str, visible: bool) -> None:
    *secrets, gardenlet = yaml.safe_load_all(landscape.gardenlet({**FACTS, "seed": seed}))
    assert gardenlet["metadata"]["name"] == seed
    spec = gardenlet["spec"]["config"]["seedConfig"]["spec"]
    assert spec["networks"]["pods"] == FACTS["pods"]
    assert spec["ingress"]["domain"] == f"ingress.{seed}.seed.local.gardener.cloud"
    assert spec["settings"]["scheduling"]["visible"] is visible
    # That of tests.
    assert secrets[0]["metadata"]["name"] == f"seed-{seed}"


def test_gardener_operator_reaches_another_cluster_with_a_kubeconfig_of_its_own() -> None:
    *secrets, gardenlet = yaml.safe_load_all(landscape.gardenlet({**FACTS, "seed": "local2"}))
    told = gardenlet["spec"]["kubeconfigSecretRef"]["name"]
    [secret] = [one for one in secrets if one["metadata"]["name"] == told]
    assert secret["data"] == {"kubeconfig": FACTS["cluster"]}
    assert told != "seed-local2"  # it is deleted
    *_, first = yaml.safe_load_all(landscape.gardenlet({**FACTS, "seed": "local"}))
    assert "kubeconfigSecretRef" not in first["spec"]


def test_the_second_sandbox_has_the_registry_names_and_backups_of_the_first(tmp_path: Path) -> None:
    v4, v6 = next(addresses.parts(Options().ranges))
    first = Base(
        folder=tmp_path,
        state=State(name="gardener", pid=1, started="1", since=0),
        api=ApiServer("https://198.18.0.1:6443", Pair(tmp_path, tmp_path), Pair(tmp_path, tmp_path)),
        plan=Plan(v4, v6, addresses.names(2)),
        ranges=ranges.part(700),
    )
    options = Options.model_validate(base.options_beside(first))
    assert options.servers == "198.18.0.1"
    assert options.shared_from == str(tmp_path / "shared")
    assert options.shared_folders == Options.model_validate(base.options()).shared_folders
    assert list(options.companions) == ["players"]
    assert options.nodes == 1
