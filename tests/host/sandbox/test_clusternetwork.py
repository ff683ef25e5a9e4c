"""What the API server of a sandbox may dial: its own Services and Pods, and never those of others."""

from __future__ import annotations

import json
import secrets
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

import pytest

from sandbox import processes
from sandbox.nodes import addresses, iproute, routes
from sandbox.nodes.addresses import Plan
from sandbox.nodes.claims import Claim
from sandbox.options import Options
from sandbox.servers import ranges
from sandbox.servers.ranges import ClusterNetwork
from tests.host.traffic import addresses as addresses_of_loopback
from tests.support import echoclient, webhooks, worldwithnodes
from tests.support.commandline import CommandLine
from tests.support.servers import ControlPlane
from tests.support.webhooks import Escapes
from windowbox.errors import Malformed
from windowbox.models.addresses import Network

root_only = pytest.mark.skipif(not routes.possible(), reason="needs root, to set routes")

PLAN = Plan(*next(addresses.parts(Options().ranges)), addresses.names(2))


def test_ranges_stay_with_the_data(tmp_path: Path) -> None:
    first = ranges.kept(tmp_path, [])
    assert ranges.kept(tmp_path, first.networks) == first


def test_new_ranges_are_free_on_this_host(tmp_path: Path) -> None:
    half: list[Network] = [IPv4Network("240.0.0.0/5"), IPv6Network("fd77:6e64:6278:f000::/54")]
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        found = ranges.kept(tmp_path / str(number), half)
        assert not any(ranges.overlapping(network, half) for network in found.networks)


def test_data_of_earlier_versions_keep_unrouted_ranges(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    found = ranges.kept(tmp_path, [])
    assert str(found.services_v4) == "10.2.0.0/16"
    with routes.laid(tmp_path) as network:
        assert not network.routed


def test_a_damaged_file_of_ranges_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ranges.json").write_text("{}")
    with pytest.raises(Malformed, match="down --wipe"):
        ranges.kept(tmp_path, [])


@pytest.mark.parametrize("number", [0, 1, 1919])
def test_parts_of_ranges_do_not_overlap(number: int) -> None:
    one, other = ranges.part(number), ranges.part((number + 1) % 1920)
    ours = [ip_network("255.0.0.0/8"), *map(ip_network, Options().ranges[:1])]
    networks = [*one.networks, *other.networks, *ours]
    for index, network in enumerate(networks):
        assert ranges.overlapping(network, networks[index + 1 :]) == []


@root_only
def test_a_default_route_of_an_earlier_version_does_not_end_the_host_agent() -> None:
    """It set one for a node with the podCIDR 0.0.0.0/0."""
    claim, namespace = Claim(255), f"wbtest-{secrets.token_hex(3)}"
    iproute.run("ip", "netns", "add", namespace)
    try:
        iproute.apply(["link set lo up", "addr add 240.9.0.1/24 dev lo"], namespace)
        for wanted in ({"0.0.0.0/0": "240.9.0.7"}, {"240.1.0.0/24": "240.9.0.7"}):
            routes.lead(claim, namespace, wanted, [ip_network("240.1.0.0/16")])
    finally:
        iproute.run("ip", "netns", "del", namespace)


@root_only
def test_two_sandboxes_do_not_share_ranges(tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    with routes.laid(tmp_path, ["127.5.0.0/16", "fd77:6e64:7472:5::/120"]) as first:
        assert webhooks.leads("fd77:6e64:7472:5::1") == "nowhere"
        (copied / "ranges.json").write_bytes((tmp_path / "ranges.json").read_bytes())
        with routes.laid(copied) as second:
            assert (first.routed, second.routed) == (True, False)
        assert webhooks.leads(str(first.ranges.services_v4[1])) == "nowhere"
        assert first.ranges.services_v4 in routes.known()
        assert first.ranges.services_v4 not in routes.known(foreign=True)
    assert first.ranges.services_v4 not in routes.known()


def test_without_routes_only_loopback_and_nodes_are_reached(tmp_path: Path) -> None:
    kept = ranges.part(7)
    assert ClusterNetwork(kept, routed=True).environment() == {}
    variables = ClusterNetwork(kept, [PLAN.v4, PLAN.v6]).environment()
    assert variables["HTTPS_PROXY"] == variables["HTTP_PROXY"] == "http://127.0.0.1:1"
    assert variables["NO_PROXY"] == f"{PLAN.v4},{PLAN.v6}"


@root_only
def test_an_api_server_without_routes_sends_nothing_out(control_plane: ControlPlane) -> None:
    api = control_plane.api
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"ports": [{"port": 443}]},
    }  # fmt: skip
    [address] = api.apply(webhooks.SERVICE, service)["spec"]["clusterIPs"]
    with Escapes([address], []) as escapes, webhooks.configured(api):
        refused, seconds = webhooks.refused(api)
        assert "127.0.0.1:1: connect: connection refused" in refused
        assert seconds < 20  # a packet that is dropped takes all of the 30 that the webhook may take
        assert escapes.count() == 0


def test_the_sandbox_ignores_proxies_of_the_shell(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert control_plane.api.ready()
    assert not [name for name in processes.environment() if name.lower().endswith("_proxy")]


@root_only
@pytest.mark.long  # test_detached.py shows that routes go, traffic/test_changes.py what becomes of addresses
def test_load_balancer_addresses_go_with_a_killed_sandbox(windowbox: CommandLine) -> None:
    windowbox("up", "--nodes=0")
    kubeconfig = windowbox.folder / "operator.kubeconfig"
    spec = {"type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    worldwithnodes.kubectl(kubeconfig, "create", "-f", "-", stdin=json.dumps(service))
    prefix = ranges.kept(windowbox.folder, []).balancers
    echoclient.until(lambda: _added(prefix))
    windowbox.kill()
    assert _added(prefix)
    windowbox("down", "--wipe")
    assert not addresses_of_loopback.present(str(prefix))


def _added(prefix: IPv6Network) -> set[str]:
    found = addresses_of_loopback.present(str(prefix))
    assert found
    return found
