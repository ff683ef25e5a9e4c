"""Addresses that nodes name in their status: which of them traffic is sent to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from bus import subjects
from bus.clusters.registry import MachinePlace, Member, Registry
from bus.messages import OPERATION, UID, VERSION
from bus.transport.connection import Bus
from tests.support.running import eventually, running, soon
from windowbox.models.loadbalancers import family
from windowbox.models.refs import PODS, RUNTIME, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import nodeadmission as admission_module
from workers.loadbalancer.edge.machineroutes import Machines
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.trafficnodes import Backend

HOST = "172.18.0.2"
"""Where all machine Pods run."""
GATEWAY = "172.18.0.1"
VICTIM = "10.1.0.5"


def node(name: str, *addresses: str, created: str = "2026-01-01T00:00:00Z", uid: str = "") -> Backend:
    return Backend(name, {family(one): one for one in addresses}, created=created, uid=uid)


@dataclass
class Scene:
    """Shoots a and b, whose nodes are Pods of the runtime cluster; c, whose nodes are none."""

    bus: Bus
    machines: Machines
    changed: asyncio.Event

    def admission(self, **settings: Any) -> Admission:
        return Admission(LoadBalancerSettings(**settings), self.machines, self.changed.set)

    async def machine(self, cluster: str, name: str, *ips: str) -> None:
        """The machine Pod runs, and has these addresses."""
        ref = ObjectRef(RUNTIME, PODS.id, f"infra-{cluster}", name)
        status = {"phase": "Running", "hostIPs": [{"ip": HOST}, {"ip": "fd00:10::2"}],
                  "podIPs": [{"ip": ip} for ip in ips]}  # fmt: skip
        body = orjson.dumps({"metadata": {"labels": {"app": "machine"}}, "status": status})
        await self.bus.publish(subjects.seen(ref), body, {OPERATION: "MODIFIED", UID: "u", VERSION: "1"})

        async def seen() -> bool:
            found = self.machines._machine(MachinePlace(namespace=f"infra-{cluster}"), name)
            return found is not None and found.own == set(ips)

        await eventually(seen)


@pytest.fixture
async def scene(bus: Bus) -> AsyncIterator[Scene]:
    registry, changed = Registry(bus), asyncio.Event()
    for cluster in "ab":
        place = MachinePlace(namespace=f"infra-{cluster}")
        await registry.join(Member(id=cluster, file="kubeconfig", machines=place))
    await registry.join(Member(id="c", file="kubeconfig"))
    machines = Machines(bus, registry, changed.set)
    async with running(registry.run(), machines.run()):
        await soon(registry.complete.wait())
        await soon(machines.complete())
        await bus.publish(subjects.listed(RUNTIME, PODS.id), b"")

        async def listed() -> bool:
            return not machines.unlisted("a") and len(registry.members) == 3

        await eventually(listed)
        made = Scene(bus, machines, changed)
        await made.machine("a", "victim", VICTIM, "fd00:1::5")
        await made.machine("b", "thief", "10.1.0.6")
        yield made


def admitted(of: Admission, **clusters: list[Backend]) -> dict[str, set[str]]:
    """All addresses that are admitted, by cluster."""
    found = of.admitted({RUNTIME: [], **clusters})
    return {c: {a for node in nodes for a in node.addresses.values()} for c, nodes in found.items()}


async def test_the_addresses_of_a_machine_pod_are_its_nodes(scene: Scene) -> None:
    found = admitted(scene.admission(), a=[node("victim", VICTIM, "fd00:1::5")])
    assert found["a"] == {VICTIM, "fd00:1::5"}


@pytest.mark.parametrize("stolen", [VICTIM, GATEWAY, HOST, "10.1.0.99", "127.0.0.1", "8.8.8.8"])
async def test_no_node_gets_an_address_that_is_not_its_machines(scene: Scene, stolen: str) -> None:
    tried = scene.admission()
    nodes = {"a": [node("victim", VICTIM)], "b": [node("thief", stolen, created="2020-01-01T00:00:00Z")]}
    assert admitted(tried, **nodes) == {RUNTIME: set(), "a": {VICTIM}, "b": set()}
    assert scene.machines.routes(tried.admitted(nodes)) == {f"{VICTIM}/32": HOST}


async def test_the_other_family_of_such_a_node_is_used(scene: Scene) -> None:
    assert admitted(scene.admission(), a=[node("victim", VICTIM, "fd00:1::6")])["a"] == {VICTIM}


async def test_nodes_may_be_where_the_settings_say(scene: Scene) -> None:
    networks = [{"prefixes": ["10.2.0.0/16"], "clusters": ["b", "c"]}]
    tried = scene.admission(node_networks=networks)
    nodes = {
        "a": [node("victim", "10.2.0.1")],
        "b": [node("thief", "10.2.0.2")],
        "c": [node("one", "10.2.0.3"), node("two", "10.3.0.3")],
    }
    assert admitted(tried, **nodes) == {RUNTIME: set(), "a": set(), "b": {"10.2.0.2"}, "c": {"10.2.0.3"}}


@pytest.mark.parametrize(
    ("address", "good"),
    [("172.18.0.9", True), ("127.0.0.1", False), ("::1", False), ("169.254.169.254", False)],
)
async def test_nodes_that_are_no_pods_are_not_on_this_host(scene: Scene, address: str, good: bool) -> None:
    assert admitted(scene.admission(), c=[node("n", address)])["c"] == ({address} if good else set())
    of_runtime = scene.admission().admitted({RUNTIME: [node("n", address)]})
    assert len(of_runtime[RUNTIME]) == 1


async def test_an_address_stays_with_the_node_that_had_it_first(scene: Scene) -> None:
    tried = scene.admission(node_networks=[{"prefixes": ["10.2.0.0/16"]}])
    mine, theirs = node("m", "10.2.0.1"), node("n", "10.2.0.1", created="2020-01-01T00:00:00Z")
    assert admitted(tried, a=[mine])["a"] == {"10.2.0.1"}
    assert admitted(tried, a=[mine], b=[theirs]) == {RUNTIME: set(), "a": {"10.2.0.1"}, "b": set()}
    assert admitted(tried, a=[], b=[theirs])["b"] == {"10.2.0.1"}
    assert admitted(tried, a=[mine], b=[theirs])["a"] == set()


async def test_the_older_of_two_has_the_address_if_neither_was_known(scene: Scene) -> None:
    networks = [{"prefixes": ["10.2.0.0/16"]}]
    older, newer = node("m", "10.2.0.1", created="2025-01-01T00:00:00Z"), node("n", "10.2.0.1")
    assert admitted(scene.admission(node_networks=networks), a=[newer], b=[older])["b"] == {"10.2.0.1"}
    runtimes = scene.admission(node_networks=networks).admitted({RUNTIME: [newer], "b": [older]})
    assert (len(runtimes[RUNTIME]), runtimes["b"]) == (1, [])


async def test_a_cluster_that_takes_part_under_two_names_is_no_conflict(scene: Scene) -> None:
    tried = scene.admission(node_networks=[{"prefixes": ["10.2.0.0/16"]}])
    same = node("m", "10.2.0.1", uid="u")
    assert admitted(tried, a=[same], b=[same]) == {RUNTIME: set(), "a": {"10.2.0.1"}, "b": {"10.2.0.1"}}


async def test_a_refusal_that_lasts_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "_SETTLING", 0.01)
    tried = scene.admission()
    nodes = {"b": [node("thief", VICTIM), node("new", "10.1.0.9")]}
    scene.changed.clear()
    tried.admitted(nodes)
    assert tried.refused("b") == ()
    await soon(scene.changed.wait())
    assert tried.refused("b") == (
        "node new: it has no machine Pod infra-b/new that runs on a host",
        f"node thief: {VICTIM} is no address of its machine Pod infra-b/thief",
    )
    assert tried.refused("a") == ()
    tried.admitted({"b": [node("thief", "10.1.0.6")]})
    assert tried.refused("b") == ()


async def test_machines_that_the_bus_has_forgotten_decide_nothing(scene: Scene) -> None:
    tried, known, new = scene.admission(), node("victim", VICTIM), node("new", "10.1.0.7")
    assert not tried.undecided("a", [known, new])
    await scene.bus.publish(subjects.listed(RUNTIME, PODS.id), b"", {OPERATION: "DELETED"})

    async def forgotten() -> bool:
        return scene.machines.unlisted("a")

    await eventually(forgotten)
    assert tried.undecided("a", [new])
    assert not tried.undecided("c", [new])
