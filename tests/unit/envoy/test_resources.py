"""The content of Envoy's files, and the order in which they are written."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.servers.envoy.world import balancer
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.docker import Container
from windowbox.errors import Malformed, Unreachable
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer, Target, Targets
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy import limits, protobuf, rendering, resources
from workers.loadbalancer.envoy.docker.boxes import Household
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerHost, Shared
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.envoy.resources import Configuration

NODES = tuple(Endpoint(f"10.0.0.{i}", 30080, f"n{i}") for i in (1, 2))
WEB = Listener("10.9.0.1", 80, "TCP", NODES, check=10256)
DNS = Listener("10.9.0.1", 53, "UDP", NODES, check=10256)


def made(*listeners: Listener, eds: tuple[str, ...] = ()) -> Configuration:
    return resources.configuration([balancer(*listeners)], folder="/f", eds=eds)


def cluster(one: Listener) -> dict[str, Any]:
    return protobuf.resource(made(one).clusters[one.name])


def names(file: bytes) -> list[str]:
    return [protobuf.name_of(entry) for entry in protobuf.entries(file)]


def test_the_order_of_listeners_does_not_matter() -> None:
    turned = replace(WEB, endpoints=tuple(reversed(NODES)))
    assert made(turned, DNS).files == made(DNS, WEB).files


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


def test_files_are_read_as_they_were_written() -> None:
    before = made(WEB, DNS, eds=(DNS.name,))
    after = resources.parsed(before.files)
    assert after == before
    assert after.files == before.files


def test_only_new_sockets_of_datagrams_get_options() -> None:
    def levels(made: Configuration) -> list[int]:
        found = (protobuf.resource(one).get("socket_options", []) for one in made.listeners.values())
        return [option["level"] for options in found for option in options]

    both = [DNS, replace(DNS, address="fd00::1"), WEB]
    names = [one.name for one in both]
    before = resources.configuration([balancer(*both)], folder="/f", optionless=names)
    assert levels(before) == []
    assert before.optionless == {one.name for one in both if one.protocol == "UDP"}
    after = resources.for_new_envoy(before)
    assert sorted(levels(after)) == [0, 41]
    assert after == made(*both)
    assert not after.optionless


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

        def count(*given: Any, counted: str = counted, genuine: Any = genuine, **more: Any) -> bytes:
            encoded[counted] += 1
            return cast(bytes, genuine(*given, **more))

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
    first = resources.configuration(before, folder="/f")
    assert encoded == {"_endpoint": 3 * 2 * 100, "listener": 3 * 250}
    targets: Targets = {"IPv4": (replace(nodes[0], unhealthy=True), *nodes[1:])}
    after = [before[0], *(replace(one, targets=targets) for one in before[1:])]
    encoded.clear()
    second = resources.configuration(after, folder="/f", before=first)
    assert encoded == {"_endpoint": 2 * 100}, "the first and the last port, for all ports"
    assert second == resources.configuration(after, folder="/f")
    encoded.clear()
    assert resources.configuration(after, folder="/f", before=second) == second
    assert not encoded


@cases("port", ("one-byte", 1), ("two-bytes", 128), ("the-last-of-them", 16_383), ("three-bytes", 65_535))
def test_the_port_of_a_node_is_filled_in(port: int) -> None:
    listed = tuple(replace(one, port=port) for one in NODES)
    one = replace(WEB, endpoints=(), node_port=port)
    targets: Targets = {"IPv4": tuple(Target(node.address, node.name) for node in NODES)}
    found = resources.configuration([replace(balancer(one), targets=targets)], folder="/f")
    assert found == made(replace(WEB, endpoints=listed))


@cases(
    "before after written",
    ("LB-15-3-added", (), (WEB,), [["cds.pb", "lds.pb"]]),
    ("LB-15-3-removed", (WEB,), (), [["lds.pb"], ["cds.pb"]]),
    ("LB-15-3-added-and-removed", (WEB,), (DNS,), [["cds.pb", "lds.pb"], ["cds.pb"]]),
    ("LB-2-idempotent", (WEB,), (WEB,), []),
    ("LB-15-4-nodes", (WEB,), (replace(WEB, endpoints=NODES[:1]),), [["cds.pb"]]),
    ("LB-15-4-ranges", (WEB,), (replace(WEB, allowed=("::/0",)),), [["lds.pb"]]),
)
def test_no_listener_ever_lacks_its_cluster(
    before: tuple[Listener, ...], after: tuple[Listener, ...], written: list[list[str]]
) -> None:
    steps = resources.steps(made(*before), made(*after))
    assert [list(step) for step in steps] == written
    assert all(step.get("cds.pb") != b"" for step in steps)


@rule("LB-15-3")
def test_between_two_steps_there_are_clusters_for_old_and_new() -> None:
    first, last = resources.steps(made(WEB), made(DNS))
    assert names(first["cds.pb"]) == ["tcp_10.9.0.1_80", "udp_10.9.0.1_53"]
    assert names(last["cds.pb"]) == ["udp_10.9.0.1_53"]


@rule("LB-15-5")
def test_nodes_of_udp_are_in_a_file_of_their_own() -> None:
    before = made(DNS, eds=(DNS.name,))
    after = made(replace(DNS, endpoints=NODES[:1]), eds=(DNS.name,))
    assert [list(step) for step in resources.steps(before, after)] == [["eds_udp_10.9.0.1_53.pb"]]


@rule("LB-11-8")
def test_listeners_can_do_without_files_of_their_own() -> None:
    assert resources.in_one_file(made(WEB, DNS, eds=(DNS.name,))) == made(WEB, DNS)


@rule("LB-11-8", "LB-15-6")
def test_a_listener_keeps_its_file_while_others_come() -> None:
    many = [Listener("10.9.0.1", port, "UDP", NODES) for port in range(100, 110)]
    before = made(*many[5:], eds=tuple(one.name for one in many[5:]))
    chosen = limits.chosen(before.endpoints, [*many, WEB], most=6)
    assert len(chosen) == 6
    assert {one.name for one in many[5:]} < chosen


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
    (first, _) = cluster(WEB)["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert first["endpoint"]["health_check_config"] == {"port_value": 10256}
    (check,) = cluster(WEB)["health_checks"]
    assert (check["timeout"], check["interval"]) == ("1s", "1.5s")
    assert (check["unhealthy_threshold"], check["healthy_threshold"]) == (3, 1)
    assert cluster(WEB)["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}


@cases(
    "allowed prefixes",
    ("LB-7-ranges-host-bits", ("10.1.2.3/8",), ["10.0.0.0/8"]),
    ("LB-7-ranges-blanks", (" 10.0.0.0/9 ", "10.128.0.0/9"), ["10.0.0.0/8"]),
    ("LB-7-ranges-twice", ("10.0.0.0/8", "10.1.0.0/16"), ["10.0.0.0/8"]),
    ("LB-7-ranges-of-the-other-family", ("fd00::/8",), ["0.0.0.0/32"]),
)
def test_ranges_become_prefixes(allowed: tuple[str, ...], prefixes: list[str]) -> None:
    listener = protobuf.resource(made(replace(WEB, allowed=allowed)).listeners[WEB.name])
    match = listener["filter_chains"][0]["filter_chain_match"]["source_prefix_ranges"]
    assert [f"{p['address_prefix']}/{p['prefix_len']}" for p in match] == prefixes


def test_ports_are_read_from_names() -> None:
    published = made(WEB, replace(DNS, address="fd00::1")).published
    assert [(p.address, p.port, p.protocol) for p in published] == [
        ("10.9.0.1", 80, "TCP"),
        ("fd00::1", 53, "UDP"),
    ]


class WithoutContainers:
    """A Docker engine whose containers were removed by hand."""

    async def labelled(self, labels: Mapping[str, str]) -> list[Container]:
        return []


@pytest.mark.parametrize("file", ["cds.pb", "lds.pb", "runtime.json", "owners.json", "asked-lds.pb"])
@pytest.mark.parametrize("damage", ["empty", "zeros", "half"])
async def test_files_that_a_failing_host_left_damaged_are_not_used(
    file: str, damage: str, tmp_path: Path
) -> None:
    files = made(WEB, DNS, eds=(DNS.name,)).files
    files = {**files, "asked-lds.pb": files["lds.pb"]}
    assert resources.are_usable(files)
    whole = files[file]
    cut = {"empty": b"", "zeros": bytes(len(whole)), "half": whole[: len(whole) // 2]}[damage]
    for number, content in (("9", whole), ("10", cut)):
        Shared(tmp_path / "edge" / number).prepare({**files, file: content})
    engine: Any = WithoutContainers()
    docker = DockerHost(engine, Household("image", "kind"), "network", tmp_path)
    assert await docker.kept("edge") == files
    assert await Processes(tmp_path, program=Path("/bin/true")).kept("edge") == files


@pytest.mark.parametrize("files", [{"lds.pb": b"\x12\x09"}, {"runtime.json": b""}, {"owners.json": b"[]"}])
def test_damaged_files_are_malformed(files: dict[str, bytes]) -> None:
    with pytest.raises(Malformed):
        resources.parsed(files)


def test_a_file_that_is_not_on_the_disk_yet_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unreachable, match="the disk fails"):
        Shared(tmp_path / "edge" / "1").prepare(made(WEB).files)
    assert [one for one in (tmp_path / "edge" / "1").iterdir() if not one.name.startswith(".")] == []
