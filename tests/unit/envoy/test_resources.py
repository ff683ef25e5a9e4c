"""The content of Envoy's resources."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.envoy.world import balancer, configured, tracked
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.xds import messages
from windowbox.errors import Malformed, Unreachable
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer, Target, Targets
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy import limits, rendering, resources
from workers.loadbalancer.envoy.delta import Kind
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerHost, Shared
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.envoy.rendering import EndpointLists
from workers.loadbalancer.envoy.resources import Configuration

NODES = tuple(Endpoint(f"10.0.0.{i}", 30080, f"n{i}") for i in (1, 2))
WEB = Listener("10.9.0.1", 80, "TCP", NODES, check=10256)
DNS = Listener("10.9.0.1", 53, "UDP", NODES, check=10256)


def made(*listeners: Listener) -> Configuration:
    return configured([balancer(*listeners)])


def cluster(one: Listener) -> dict[str, Any]:
    return messages.fields(Kind.CLUSTERS, made(one).clusters[one.name].content)


def endpoints(one: Listener) -> list[dict[str, Any]]:
    found = messages.fields(Kind.ENDPOINTS, made(one).endpoints[one.name].content)
    listed: list[dict[str, Any]] = found["endpoints"][0]["lb_endpoints"]
    return listed


def test_the_order_of_listeners_does_not_matter() -> None:
    turned = replace(WEB, endpoints=tuple(reversed(NODES)))
    assert made(turned, DNS).resources() == made(DNS, WEB).resources()


@cases(
    "files all_connections of_one flows",
    ("usual", 2**20, 50_000, 37_500, 16_384),
    ("few", 20_000, 7_500, 5_625, 1_024),
    ("fewest", 4096, 1_536, 1_152, 512),
)
def test_envoy_never_runs_out_of_files(files: int, all_connections: int, of_one: int, flows: int) -> None:
    """Without a free one it exits, and all connections of all Services are cut."""
    assert limits.most_connections(files) == all_connections
    assert limits.most_of_one(files) == of_one
    assert limits.most_flows(files) == flows
    assert 2 * all_connections + flows < files


def test_sockets_of_datagrams_get_options() -> None:
    both = [DNS, replace(DNS, address="fd00::1"), WEB]
    found = made(*both).listeners
    options = [messages.fields(Kind.LISTENERS, found[one.name].content).get("socket_options") for one in both]
    assert [option and option[0].get("level", "0") for option in options] == ["0", "41", None]


def test_one_more_changes_nothing_of_the_others() -> None:
    assert made(WEB, DNS).clusters[WEB.name] == made(WEB).clusters[WEB.name]
    assert made(WEB, DNS).listeners[WEB.name] == made(WEB).listeners[WEB.name]


def test_a_change_of_a_node_is_encoded_once_for_all_ports_and_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two Services with 250 ports before a hundred nodes have 50,000 endpoints, and nodes change often."""
    encoded = Counter[str]()
    for counted in ("_endpoint", "listener"):
        genuine = getattr(rendering, counted)

        def count(*given: Any, counted: str = counted, genuine: Any = genuine, **more: Any) -> Any:
            encoded[counted] += 1
            return genuine(*given, **more)

        monkeypatch.setattr(rendering, counted, count)
    nodes = [Target(f"10.0.0.{number}", f"n{number}") for number in range(100)]
    ports = range(30_000, 30_250)
    before = [
        LoadBalancer(
            ObjectRef(RUNTIME, "services", "default", address),
            address,
            tuple(Listener(address, port, "TCP", node_port=port) for port in ports),
            {"IPv4": tuple(nodes)},
        )
        for address in ("10.9.0.1", "10.9.0.2", "10.9.0.3")
    ]
    made = Configuration()
    made.take(resources.rendered(tracked(before), made))
    assert encoded == {"_endpoint": 3 * 2 * 100, "listener": 3 * 250}
    targets: Targets = {"IPv4": tuple(nodes[1:])}
    after = [replace(one, targets=targets) for one in before[1:]]
    encoded.clear()
    made.retarget(resources.retargeted(after, made, EndpointLists()))
    assert encoded == {"_endpoint": 2 * 99}, "the first and the last port, for all ports"
    assert made.resources() == configured([before[0], *after]).resources()
    encoded.clear()
    assert resources.rendered(tracked(after), made) == {}
    assert not encoded


def test_the_health_of_a_node_changes_only_lists_with_it() -> None:
    v4, v6 = Target("10.0.0.1", "n1"), Target("fd00::1", "n1")
    targets: Targets = {"IPv4": (v4, Target("10.0.0.2", "n2")), "IPv6": (v6,)}
    port = Listener("10.9.0.1", 80, "TCP", node_port=30080)
    listeners = (port, replace(port, port=81, check=31234), replace(port, address="fd00:9::1"))
    one = replace(balancer(*listeners), targets=targets)
    other = replace(balancer(replace(port, port=82), name="other"), targets={"IPv4": (targets["IPv4"][1],)})
    made = configured([one, other])
    changes = made.endpoints.changes()
    sick = frozenset({v4.address})
    assert made.behind(sick) == {one.ref: one}
    with changes.taken():
        made.retarget(resources.retargeted([one], made, EndpointLists(sick)))
    with changes.taken() as changed:
        assert changed == {port.name}, "neither that of the other family, nor one that Envoy checks"
    assert made.resources() == configured([one, other], sick).resources()
    found = messages.fields(Kind.ENDPOINTS, made.endpoints[port.name].content)
    states = [end.get("health_status") for end in found["endpoints"][0]["lb_endpoints"]]
    assert states == ["UNHEALTHY", None]
    made.retarget(resources.retargeted([one], made, EndpointLists()))
    assert made.resources() == configured([one, other]).resources()


@cases("port", ("one-byte", 1), ("two-bytes", 128), ("the-last-of-them", 16_383), ("three-bytes", 65_535))
def test_the_port_of_a_node_is_filled_in(port: int) -> None:
    listed = tuple(replace(one, port=port) for one in NODES)
    one = replace(WEB, endpoints=(), node_port=port)
    targets: Targets = {"IPv4": tuple(Target(node.address, node.name) for node in NODES)}
    found = configured([replace(balancer(one), targets=targets)])
    assert found.resources() == made(replace(WEB, endpoints=listed)).resources()


@cases(
    "checks milliseconds",
    ("none", 0, 500),
    ("as-many-as-fit", 50, 500),
    ("one-more", 51, 1500),
    ("as-many-as-fit-into-the-usual-interval", 150, 1500),
    ("and-one-more", 151, 3000),
    ("more-than-the-steps", 301, 5000),
    ("a-thousand-services-of-two-nodes", 2000, 20000),
    ("a-thousand-services-and-one-more", 2001, 25000),
)
def test_checks_stay_below_a_hundred_a_second(checks: int, milliseconds: int) -> None:
    assert resources.check_interval(checks) == milliseconds


@rule("LB-7-cluster", "LB-16-health")
def test_nodes_are_checked_at_their_health_port() -> None:
    (first, _) = endpoints(WEB)
    assert first["endpoint"]["health_check_config"] == {"port_value": 10256}
    (check,) = cluster(WEB)["health_checks"]
    assert (check["timeout"], check["interval"]) == ("1s", "1.500s")
    assert (check["unhealthy_threshold"], check["healthy_threshold"]) == (3, 1)
    assert cluster(WEB)["common_lb_config"]["healthy_panic_threshold"] == {}


@cases(
    "allowed prefixes",
    ("LB-7-ranges-host-bits", ("10.1.2.3/8",), ["10.0.0.0/8"]),
    ("LB-7-ranges-blanks", (" 10.0.0.0/9 ", "10.128.0.0/9"), ["10.0.0.0/8"]),
    ("LB-7-ranges-twice", ("10.0.0.0/8", "10.1.0.0/16"), ["10.0.0.0/8"]),
    ("LB-7-ranges-of-the-other-family", ("fd00::/8",), ["0.0.0.0/32"]),
)
def test_ranges_become_prefixes(allowed: tuple[str, ...], prefixes: list[str]) -> None:
    found = made(replace(WEB, allowed=allowed)).listeners[WEB.name]
    listener = messages.fields(Kind.LISTENERS, found.content)
    match = listener["filter_chains"][0]["filter_chain_match"]["source_prefix_ranges"]
    assert [f"{p['address_prefix']}/{p['prefix_len']}" for p in match] == prefixes


def test_ports_are_read_from_names() -> None:
    published = made(WEB, replace(DNS, address="fd00::1")).published
    assert [(p.address, p.port, p.protocol) for p in published] == [
        ("10.9.0.1", 80, "TCP"),
        ("fd00::1", 53, "UDP"),
    ]


def test_listeners_of_a_container_are_at_all_of_its_addresses() -> None:
    found = configured([balancer(WEB, replace(DNS, address="fd00::1"))], anywhere=True).listeners
    places = [
        messages.fields(Kind.LISTENERS, one.content)["address"]["socket_address"] for one in found.values()
    ]
    assert [place["address"] for place in places] == ["0.0.0.0", "::"]
    assert list(found) == ["tcp_10.9.0.1_80", "udp_fd00::1_53"]


def test_an_unknown_field_is_malformed() -> None:
    with pytest.raises(Malformed, match="no_such_field"):
        messages.message(Kind.CLUSTERS, {"no_such_field": 1})


@pytest.mark.parametrize("damage", ["empty", "zeros", "half"])
async def test_a_file_that_a_failing_host_left_damaged_is_not_used(damage: str, tmp_path: Path) -> None:
    owner = resources.Owner("runtime", "garden", "web", "uid", ("10.9.0.1",))
    whole = resources.owners_file([resources.owner_part(owner)])
    cut = {"empty": b"", "zeros": bytes(len(whole)), "half": whole[: len(whole) // 2]}[damage]
    for number, content in (("9", whole), ("10", cut)):
        Shared(tmp_path / "edge" / number).prepare({"owners.json": content})
    engine: Any = None
    docker = DockerHost(engine, Household("image", "kind"), "network", tmp_path)
    for attachment in (docker, Processes(tmp_path, program=Path("/bin/true"))):
        file = await attachment.owners("edge")
        assert file is not None
        assert resources.owners_in(file) == (owner,)


def test_owners_of_the_version_before_are_read() -> None:
    found = b'{"cluster":"a","namespace":"n","name":"w","uid":"u","addresses":["10.9.0.1"]}'
    file = b'{"version_info":"1f","resources":[' + found + b"]}"
    assert resources.owners_in(file) == (resources.Owner("a", "n", "w", "u", ("10.9.0.1",)),)


@pytest.mark.parametrize("file", [b"", b"[]", b'{"resources":[{}]}'])
def test_damaged_owners_are_malformed(file: bytes) -> None:
    with pytest.raises(Malformed):
        resources.owners_in(file)


def test_a_file_that_is_not_on_the_disk_yet_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unreachable, match="the disk fails"):
        Shared(tmp_path / "edge" / "1").prepare({"owners.json": b"{}"})
    assert [one for one in (tmp_path / "edge" / "1").iterdir() if not one.name.startswith(".")] == []


def test_a_listener_of_two_load_balancers_stays_with_the_other_one() -> None:
    """The former cluster of an address may not be listed again yet when the next Service has it."""
    former, later = balancer(WEB, name="former"), balancer(replace(WEB, idle_timeout=9.0), name="later")
    made = configured([former])
    for one in (later, former):
        made.take(resources.rendered(tracked([one]), made))
    made.take({former.ref: None})
    assert made.resources() == configured([later]).resources()
