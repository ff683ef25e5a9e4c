"""Statuses, Events and cleanup of load balancers; also where cloud-controller-manager-local is wrong
(rules LB-11-*)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from functools import partial
from pathlib import Path

from tests.host.traffic.world import EXCLUDED, SERVICES, World, condition, ingress, tcp, udp
from tests.support import echoclient
from tests.support.cases import cases, long
from tests.support.rules import rule
from workers.loadbalancer.envoy import bootstrap, hostfolders

_HEALTHY = [
    ("EnsuringLoadBalancer", "Ensuring load balancer"),
    ("EnsuredLoadBalancer", "Ensured load balancer"),
]
_DELETED = [
    ("DeletingLoadBalancer", "Deleting load balancer"),
    ("DeletedLoadBalancer", "Deleted load balancer"),
]


@rule("LB-3-healthy", "LB-3-ensuring", "LB-3-ensured", "LB-11-2")
def test_a_healthy_service_has_two_events(traffic: World) -> None:
    with traffic.service() as service:
        service.tells(*_HEALTHY)
        service.served()
        assert service.events() == _HEALTHY


@rule("LB-2-order", "LB-2-subresource", "LB-2-idempotent", "LB-16-patches")
def test_first_the_finalizer_then_the_status_and_nothing_else(traffic: World) -> None:
    with traffic.service() as service:
        service.tells(*_HEALTHY)
        # An annotation of others: the Service is reconciled, and nothing is written.
        service.annotate(**{"example.org/noted": "yes"})
        service.served()
        writes = traffic.writes(service.name)
    assert writes[0] == ("worker", "patch services/status")
    assert set(writes[1:]) == {("patcher", "patch services/status")}
    assert len(writes) <= 3


@rule("LB-7-status", "LB-2-semantic")
def test_the_status_shows_address_mode_and_ports(traffic: World) -> None:
    with traffic.service(tcp(80), udp(53)) as service:
        found = service.read()
        ports = [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
        assert ingress(found) == [{"ip": service.address, "ipMode": "Proxy", "ports": ports}]
        serving = condition(found, "LoadBalancerServing")
        assert (serving["status"], serving["reason"]) == ("True", "Serving")
        assert service.address in serving["message"]
        assert condition(found, "LoadBalancerProvisioning")["status"] == "False"
        assert condition(found, "LoadBalancerDegraded") == {}


@rule("LB-2-deletion", "LB-2-finalizers", "LB-3-deleting", "LB-3-deleted", "LB-7-deletion", "LB-16-life")
def test_deletion_leaves_nothing_but_the_finalizers_of_others(traffic: World) -> None:
    with traffic.service() as service:
        others = [*service.read()["metadata"]["finalizers"], "example.org/mine"]
        traffic.merge(service.path, {"metadata": {"finalizers": others}})
        traffic.delete(service.path)
        service.wait(lambda s: s["metadata"]["finalizers"] == ["example.org/mine"])
        service.refuses()
        service.wait(lambda s: not ingress(s))
        # Its address is free: another may have it at once, although the object is still there.
        with traffic.service(loadBalancerIP=service.address) as another:
            assert another.address == service.address
            another.served()
        service.tells(*_HEALTHY, *_DELETED)
        traffic.merge(service.path, {"metadata": {"finalizers": None}})
        traffic.gone(service.name)
        # The worker has released it; then its status was emptied, and nothing was written since.
        assert traffic.writes(service.name)[-1] == ("patcher", "patch services/status")


@rule("LB-3-updated", "LB-5-sync", "LB-16-life")
def test_changed_nodes_cause_one_event(traffic: World) -> None:
    with traffic.service() as service:
        service.tells(*_HEALTHY)
        with traffic.excluded("node-2"):
            service.tells(*_HEALTHY, ("UpdatedLoadBalancer", "Updated load balancer with new hosts"))
        writes = traffic.writes(service.name)
    assert len(writes) <= 3


@rule("LB-3-unavailable", "LB-5-said", "LB-2-empty", "LB-11-1", "LB-15-14")
def test_missing_nodes_are_reported_and_new_ones_used(traffic: World) -> None:
    with traffic.excluded(*traffic.names), traffic.service() as early:
        said = early.reported("UnAvailableLoadBalancer")
        assert said.startswith("There are no available nodes for LoadBalancer: all 3 nodes carry the label")
        assert EXCLUDED in said
        found = early.wait(lambda s: condition(s, "LoadBalancerServing").get("status") == "False")
        assert EXCLUDED in condition(found, "LoadBalancerServing")["message"]
        assert early.outcome() in ("closed", "refused")
        for node in traffic.names:
            traffic.label(node, None)
        early.served()
        early.wait(lambda s: condition(s, "LoadBalancerServing")["status"] == "True")
        assert ingress(early.read())[0]["ip"] == early.address


@rule("LB-11-5", "LB-11-9", "LB-1-resync", "LB-5-vanished")
def test_a_killed_envoy_returns_with_all_addresses(traffic: World) -> None:
    with traffic.service(tcp(), udp()) as service:
        service.served()
        os.kill(_envoy(traffic), signal.SIGKILL)
        with traffic.service() as newcomer:
            assert newcomer.address != service.address
        service.served()
        service.served_by_udp()
        assert ingress(service.read())[0]["ip"] == service.address


@rule("LB-11-7")
def test_health_checks_run_no_program(traffic: World) -> None:
    def children_ended() -> list[int]:
        """Page faults of children that were waited for: they only grow when a program was run."""
        worker = traffic.nodes.sandbox.state.children["worker-1"].pid
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in (worker, _envoy(traffic))]
        # The name of the program, in brackets, may hold anything; the eleventh value stands for `cminflt`.
        return [int(stat.rpartition(")")[2].split()[8]) for stat in stats]

    with traffic.service(), traffic.service() as service:
        service.served()
        before = children_ended()
        # Nodes are checked every three seconds: the idle timeout is longer.
        with traffic.service(annotated={"idle_timeout": "4s"}) as patient:
            patient.served()
            # On a busy machine, Envoy may not close a connection that began right after its listener.
            assert any(_is_closed_when_idle(patient.address) for _ in range(5))
        assert children_ended() == before


@cases(
    "away",
    ("LB-11-13+LB-1-gone", ("watcher-1",)),
    long("LB-11-13+LB-1-gone-all", ("worker-1", "watcher-1", "patcher-1")),
)
def test_a_service_that_vanishes_unseen_leaves_nothing(traffic: World, away: tuple[str, ...]) -> None:
    sandbox, call = traffic.nodes.sandbox, traffic.nodes.call
    traffic.create("vanishes")
    address = ingress(traffic.wait("vanishes", ingress))[0]["ip"]
    echoclient.until(partial(echoclient.tcp, address, 80))
    for name in away:
        call(sandbox.stop(name))
    path = f"{SERVICES}/vanishes"
    traffic.merge(path, {"metadata": {"finalizers": None}})
    traffic.delete(path)
    traffic.gone("vanishes")
    assert _listeners(traffic, address)
    for name in reversed(away):
        call(sandbox.start(name))
    echoclient.becomes("refused", partial(echoclient.outcome, address))
    echoclient.becomes([], partial(_listeners, traffic, address))
    with traffic.service(loadBalancerIP=address) as another:
        assert another.address == address


def _envoy(traffic: World) -> int:
    return int((_place(traffic) / "envoy.pid").read_text())


def _place(traffic: World) -> Path:
    """The folder of the Envoy that was started last."""
    return max((traffic.folder / "edge" / "edge").iterdir(), key=lambda path: int(path.name))


def _listeners(traffic: World, address: str) -> list[str]:
    asked = asyncio.run(hostfolders.ask(_place(traffic) / bootstrap.ADMIN, "/listeners")).decode()
    return [line for line in asked.splitlines() if f"::{address}:" in line]


def _is_closed_when_idle(address: str) -> bool:
    with echoclient.connected(address, timeout=12) as connection, contextlib.suppress(TimeoutError):
        echoclient.greeted(connection)
        return connection.recv(1) == b""
    return False
