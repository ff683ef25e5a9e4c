"""The extensions of the landscape: what they name is there, and the chart takes their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from sandbox.nodes import addresses
from sandbox.nodes.addresses import Plan
from sandbox.nodes.images import Image
from sandbox.options import Options
from tests.support import helm
from tools.gardener import base, contents, extensions
from tools.gardener.contents import Chart
from windowbox.models.gardener import images
from windowbox.settings.settings import Settings

PLAN = Plan(*next(addresses.parts(Options().ranges)), addresses.names(2))
GARDENER = {"version": "v1.150.0", "seed": {"name": "local"}}


def found(reference: str) -> Image | Chart | None:
    repository, _, tag = reference.rpartition(":")
    return contents.find(repository, tag)


def references(value: Any) -> Iterator[str]:
    """What is to be pulled as a chart."""
    if isinstance(value, Mapping):
        if "ociRepository" in value:
            yield value["ociRepository"]["ref"]
        for one in value.values():
            yield from references(one)


def values() -> dict[str, dict[str, Any]]:
    deployment, *_ = extensions.registrations(PLAN, 5353)
    operators = extensions.operator_extensions(PLAN, 5353)[0]["spec"]["deployment"]["extension"]
    return {
        "registration": deployment["helm"]["values"],
        "seed": operators["values"],
        "runtime": operators["runtimeClusterValues"],
    }


@pytest.mark.parametrize("way", [extensions.operator_extensions, extensions.registrations])
def test_every_chart_is_in_the_registry(way: Any) -> None:
    named = [ref for manifest in way(PLAN, 5353) for ref in references(manifest)]
    assert named
    for reference in named:
        chart = found(reference)
        assert isinstance(chart, Chart), reference
        assert (chart.folder / "Chart.yaml").exists()


@pytest.mark.parametrize("where", ["registration", "seed", "runtime"])
def test_the_chart_takes_the_values_and_all_pods_run_on_real_nodes(where: str) -> None:
    manifests = helm.rendered(**values()[where], gardener=GARDENER)
    pods = [one["spec"]["template"]["spec"] for one in manifests if "template" in one.get("spec", {})]
    assert len(pods) >= 4
    [image] = {container["image"] for pod in pods for container in pod["containers"]}
    assert image == f"registry.local.gardener.cloud:5001/windowbox/windowbox:{extensions.VERSION}"
    made = found(image)
    assert isinstance(made, Image)
    assert {"usr/bin/nats-server", "usr/bin/windowbox"} <= made.files.keys()
    assert made.name == f"windowbox/windowbox:{extensions.VERSION}"


def test_the_host_serves_no_webhook_and_no_kind_of_an_extension() -> None:
    chosen = base.options()
    assert chosen["admits"] == 0  # two of them would write one configuration in turn
    assert not [one for one in chosen["kinds"] if "gardener.cloud" in one or "machine" in one]


def test_installations_in_one_cluster_have_names_of_their_own() -> None:
    names = {where: one["rbac"]["name"] for where, one in values().items()}
    # `windowbox` are the roles of the process on the host.
    assert (names["seed"], names["runtime"]) == ("windowbox-seed", "windowbox-runtime")


def test_only_shoots_have_load_balancers_and_nodes_reach_them() -> None:
    settings = Settings.model_validate(values()["seed"]["settings"])
    assert settings.loadbalancer.clusters == ("shoot--*",)
    prefix = ip_network(extensions.balancers(PLAN))
    assert prefix.subnet_of(PLAN.nodes_v4)  # type: ignore[arg-type]
    assert not any(ip_address(one.v4) in prefix for one in PLAN.nodes)
    assert PLAN.nodes_v4.broadcast_address not in prefix
    assert not values()["runtime"].get("edge")


def test_a_second_seed_gives_load_balancers_addresses_of_its_own_sandbox() -> None:
    _, (v4, v6), *_ = addresses.parts(Options().ranges)
    second = Plan(v4, v6, addresses.names(1))
    [ours, *_] = extensions.operator_extensions(PLAN, 5353, {"local2": second})
    made = {}
    for seed in ("local", "local2"):
        manifests = helm.rendered(
            **ours["spec"]["deployment"]["extension"]["values"], gardener={**GARDENER, "seed": {"name": seed}}
        )
        texts = [
            one["stringData"]["settings.yaml"]
            for one in manifests
            if one["kind"] == "Secret" and "settings.yaml" in one.get("stringData", {})
        ]
        made[seed] = Settings.model_validate(yaml.safe_load(next(t for t in texts if "infrastructure" in t)))
    for seed, plan in (("local", PLAN), ("local2", second)):
        [only] = made[seed].loadbalancer.ranges
        assert list(map(str, only.prefixes)) == [extensions.balancers(plan)]
        assert made[seed].infrastructure.balancers == (plan.nodes_v4,)
        # Machines of both are in the first sandbox.
        assert made[seed].infrastructure.node_networks == (PLAN.nodes_v4,)
        assert made[seed].loadbalancer.clusters == ("shoot--*",)


def test_what_windowbox_deploys_into_shoots_is_in_the_registry() -> None:
    vector = {one.name: one for one in images.BUILT_IN.images}
    for name in ("local-path-provisioner", "local-path-helper"):
        assert isinstance(found(f"{vector[name].repository}:{vector[name].tag}"), Image)
