"""What is written about load balancers: finalizers, status, conditions and Events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from tests.host.traffic import clients
from tests.host.traffic.world import Balanced, Manifest, World, condition, ingress, tcp, udp
from tests.support import echoclient
from tests.support.rules import rule

_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_HEALTHY = [
    ("EnsuringLoadBalancer", "Ensuring load balancer"),
    ("EnsuredLoadBalancer", "Ensured load balancer"),
]


@rule("LB-3-healthy", "LB-3-ensuring", "LB-3-ensured", "LB-11-2")
def test_of_a_healthy_service_two_events_tell(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(_tells, service, _HEALTHY))
        echoclient.until(partial(clients.tcp, service.address, 80))
        assert service.events() == _HEALTHY


@rule("LB-2-order", "LB-2-subresource", "LB-2-idempotent", "LB-16-patches")
def test_first_the_finalizer_then_the_status_and_nothing_else(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(_tells, service, _HEALTHY))
        # A change that asks for nothing: it is looked at, and nothing is written.
        service.annotate(**{"example.org/noted": "yes"})
        echoclient.until(partial(clients.tcp, service.address, 80))
        writes = traffic.writes(service.name)
    assert writes[0] == ("worker", "patch services/status")
    assert set(writes[1:]) == {("patcher", "patch services/status")}
    assert len(writes) <= 3


@rule("LB-7-status", "LB-2-semantic")
def test_the_status_shows_address_mode_and_ports(traffic: World) -> None:
    with traffic.service(tcp(80), udp(53)) as service:
        found = service.read()
        assert ingress(found) == [
            {
                "ip": service.address,
                "ipMode": "Proxy",
                "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            }
        ]
        serving = condition(found, "LoadBalancerServing")
        assert (serving["status"], serving["reason"]) == ("True", "Serving")
        assert service.address in serving["message"]
        assert condition(found, "LoadBalancerProvisioning")["status"] == "False"
        assert condition(found, "LoadBalancerDegraded") == {}


@rule("LB-4-status")
def test_a_wiped_status_comes_back(traffic: World) -> None:
    with traffic.service() as service:
        before = ingress(service.read())
        traffic.merge(f"{service.path}/status", {"status": {"loadBalancer": {"ingress": None}}})
        service.wait(lambda s: ingress(s) == before)


@rule("LB-2-deletion", "LB-2-finalizers", "LB-3-deleting", "LB-3-deleted", "LB-7-deletion", "LB-16-life")
def test_deletion_leaves_nothing_but_the_finalizers_of_others(traffic: World) -> None:
    with traffic.service() as service:
        traffic.merge(service.path, {"metadata": {"finalizers": _and(service, "example.org/mine")}})
        traffic.delete(service.path)
        service.wait(lambda s: s["metadata"]["finalizers"] == ["example.org/mine"])
        echoclient.until(partial(_is_refused, service))
        service.wait(lambda s: not ingress(s))
        # Its address is free: another may have it at once, although the object is still there.
        with traffic.service(loadBalancerIP=service.address) as another:
            assert another.address == service.address
            echoclient.until(partial(clients.tcp, service.address, 80))
        echoclient.until(partial(_tells, service, [*_HEALTHY, *_DELETED]))
        traffic.merge(service.path, {"metadata": {"finalizers": None}})
        traffic.gone(service.name)
        # The worker has let go of it; then its status was emptied, and nothing was written since.
        assert traffic.writes(service.name)[-1] == ("patcher", "patch services/status")


_DELETED = [
    ("DeletingLoadBalancer", "Deleting load balancer"),
    ("DeletedLoadBalancer", "Deleted load balancer"),
]


@rule("LB-3-updated", "LB-5-sync", "LB-16-life")
def test_other_nodes_are_told_of_and_nothing_else(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(_tells, service, _HEALTHY))
        updated = ("UpdatedLoadBalancer", "Updated load balancer with new hosts")
        with _excluded(traffic, "node-2"):
            echoclient.until(partial(_tells, service, [*_HEALTHY, updated]))
        writes = traffic.writes(service.name)
    assert len(writes) <= 3


@rule("LB-3-unavailable", "LB-5-said", "LB-2-empty", "LB-11-1", "LB-15-14")
def test_missing_nodes_are_reported_and_new_ones_used(traffic: World) -> None:
    nodes = [node.name for node in traffic.nodes.nodes]
    with contextlib.ExitStack() as stack:
        without = stack.enter_context(_excluded(traffic, *nodes))
        del without
        early = stack.enter_context(traffic.service())
        told = dict(echoclient.until(partial(_told, early, "UnAvailableLoadBalancer")))
        said = told["UnAvailableLoadBalancer"]
        assert said.startswith("There are no available nodes for LoadBalancer: all 3 nodes carry the label")
        assert _EXCLUDED in said
        found = early.wait(lambda s: condition(s, "LoadBalancerServing").get("status") == "False")
        assert _EXCLUDED in condition(found, "LoadBalancerServing")["message"]
        assert clients.outcome(early.address, 80) in ("closed", "refused")
        for node in nodes:
            _label(traffic, node, None)
        echoclient.until(partial(clients.tcp, early.address, 80))
        early.wait(lambda s: condition(s, "LoadBalancerServing")["status"] == "True")
        assert ingress(early.read())[0]["ip"] == early.address


@rule("LB-1-class")
def test_a_service_of_another_class_is_left_alone(traffic: World) -> None:
    with (
        traffic.service(loadBalancerClass="example.org/other", ready=lambda _: True) as foreign,
        traffic.service() as ours,
    ):
        echoclient.until(partial(clients.tcp, ours.address, 80))
        assert traffic.writes(foreign.name) == []
        assert foreign.events() == []


@contextlib.contextmanager
def _excluded(traffic: World, *nodes: str) -> Iterator[None]:
    try:
        for node in nodes:
            _label(traffic, node, "")
        yield
    finally:
        for node in nodes:
            _label(traffic, node, None)


def _label(traffic: World, node: str, value: str | None) -> None:
    traffic.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": {_EXCLUDED: value}}})


def _and(service: Balanced, finalizer: str) -> list[str]:
    found: Manifest = service.read()["metadata"]
    return [*found["finalizers"], finalizer]


def _tells(service: Balanced, wanted: list[tuple[str, str]]) -> None:
    assert service.events() == wanted


def _is_refused(service: Balanced) -> None:
    assert clients.outcome(service.address, 80) == "refused"


def _told(service: Balanced, reason: str) -> list[tuple[str, str]]:
    found = service.events()
    assert reason in dict(found)
    return found
