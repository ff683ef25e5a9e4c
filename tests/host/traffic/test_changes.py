"""Services that change: ports, types, and what they lead to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from tests.host.traffic import addresses
from tests.host.traffic.world import SERVICES, Balanced, Manifest, World, ingress, shows, tcp, udp
from tests.support import echoclient
from tests.support.cases import cases, long
from tests.support.echoclient import Answer
from tests.support.rules import rule

_FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


@pytest.fixture(scope="module")
def pods(traffic: World) -> list[str]:
    """The IPv4 addresses of the echo servers."""
    found = traffic.api.read("/api/v1/namespaces/default/pods?labelSelector=app=echo")["items"]
    return [pod["status"]["podIP"] for pod in found]


@rule("LB-4-flipped", "LB-4-ports", "LB-7-typechange", "LB-11-1")
@cases("port ask", ("TCP", tcp, echoclient.tcp), long("UDP", udp, echoclient.udp))
def test_type_and_ports_can_be_changed(
    traffic: World, port: Callable[..., Manifest], ask: Callable[..., Answer]
) -> None:
    with traffic.service(port(), type="NodePort", ready=lambda _: True) as service:
        service.patch(type="LoadBalancer")
        address = ingress(service.wait(ingress))[0]["ip"]
        echoclient.until(partial(ask, address, 80))
        number = _free_node_port(traffic)
        service.patch(ports=[port(80, nodePort=number)])
        echoclient.until(partial(ask, traffic.nodes.nodes[0].v4, number))
        echoclient.until(partial(ask, address, 80))
        service.patch(ports=[port(81, nodePort=number)])
        service.wait(shows(f"81/{port()['protocol']}"))
        echoclient.until(partial(ask, address, 81))
        assert ingress(service.read())[0]["ip"] == address
        service.patch(ports=[port(81, nodePort=None)], type="ClusterIP")
        service.wait(lambda s: not ingress(s))
        _is_unanswered(ask, address, 81)


@pytest.mark.long  # test_a_second_family_can_come_and_go
def test_an_added_address_goes_with_its_service(traffic: World) -> None:
    with traffic.service(ipFamilyPolicy="PreferDualStack") as service:
        _, v6 = service.addresses
        echoclient.until(partial(echoclient.tcp, v6, 80))
        assert addresses.present(f"{v6}/128")
    _is_removed(v6)
    # Another Service, which is given the same address some day, is served there again.
    with traffic.service(ipFamilies=["IPv6"], loadBalancerIP=v6) as again:
        assert again.address == v6
        again.served()
    _is_removed(v6)


@pytest.mark.long  # test_a_second_family_can_come_and_go; servers/envoy/test_hostnetwork.py
def test_an_added_address_stays_while_a_connection_is_open(traffic: World) -> None:
    with contextlib.ExitStack() as stack:
        with traffic.service(ipFamilies=["IPv6"]) as service:
            service.served()
            held = stack.enter_context(echoclient.connected(service.address))
            echoclient.greeted(held)
        traffic.gone(service.name)
        for act in (traffic.nodes.sandbox.stop, traffic.nodes.sandbox.start):
            traffic.nodes.call(act("worker-1"))
        with traffic.service() as other:  # served by another owner of the edge
            other.served()
            echoclient.goes_on(held)
            assert addresses.present(f"{service.address}/128")
    with traffic.service():
        _is_removed(service.address)


@rule("LB-7-typechange", "LB-2-wiped")
def test_an_address_waits_for_a_service_that_changed_its_type(traffic: World) -> None:
    with traffic.service() as service, traffic.service():
        service.patch(type="ClusterIP")
        service.wait(lambda s: not ingress(s) and _FINALIZER not in s["metadata"].get("finalizers", []))
        # Where the address was added to the host, it goes once nobody uses it.
        _is_unanswered(echoclient.tcp, service.address, 80)
        with traffic.service() as another:
            assert another.address != service.address
        service.patch(type="LoadBalancer")
        again = service.wait(ingress)
        assert [entry["ip"] for entry in ingress(again)] == [service.address]
        service.served()


@rule("LB-2-finalizer", "LB-1-cleanup")
def test_the_finalizer_comes_and_goes_with_the_type(traffic: World) -> None:
    with traffic.service(type="ClusterIP", ready=lambda _: True) as service:
        for _ in range(2):
            service.patch(type="LoadBalancer")
            assert _FINALIZER in service.wait(ingress)["metadata"]["finalizers"]
            service.patch(type="ClusterIP")
            service.wait(lambda s: _FINALIZER not in s["metadata"].get("finalizers", []))


@rule("LB-7-selectorless")
def test_a_service_without_selector_leads_where_its_slices_say(traffic: World, pods: list[str]) -> None:
    with traffic.service(selector=None) as service:
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        traffic.api.create(slices, _slice(service.name, pods[:1]))
        _has_pods(service, 1)
        traffic.merge(f"{slices}/{service.name}", _endpoints(pods))
        _has_pods(service, 3)
        traffic.delete(f"{slices}/{service.name}")


@rule("LB-7-portless", "LB-11-12")
def test_a_port_without_node_port_is_refused_and_the_others_served(traffic: World) -> None:
    ports = [tcp(80, nodePort=_free_node_port(traffic)), tcp(81)]
    with traffic.service(*ports, allocateLoadBalancerNodePorts=False) as service:
        service.served()
        service.refuses(81)
        assert "81/TCP" in service.reported("NodePortMissing")
        (shown,) = ingress(service.read())
        assert shown["ports"] == [
            {"port": 80, "protocol": "TCP"},
            {"port": 81, "protocol": "TCP", "error": "loadbalancer.windowbox/NodePortMissing"},
        ]


@pytest.mark.long  # tests/unit/edge/test_endpoints.py
@rule("LB-7-portless", "LB-11-12")
def test_without_node_ports_pods_are_reached_directly(traffic: World) -> None:
    """Where the settings say that they can be; and node ports may come later."""
    with (
        traffic.service() as before,
        traffic.settings("worker-1", "loadbalancer", direct=["*"]),
        traffic.service(tcp(), udp(), allocateLoadBalancerNodePorts=False) as service,
    ):
        assert all("nodePort" not in port for port in service.read()["spec"]["ports"])
        _has_pods(service, 3)
        assert traffic.entrance(service.tcp().peer) == "the host"
        service.served_by_udp()
        before.tcp()
        service.patch(allocateLoadBalancerNodePorts=True, ports=[tcp(81)])
        assert service.wait(shows("81/TCP"))["spec"]["ports"][0]["nodePort"]
        assert traffic.entrance(service.served(81).peer) != "the host"


@rule("LB-7-address", "LB-11-6")
def test_a_requested_address_is_allocated(traffic: World) -> None:
    with traffic.service() as first:
        wanted = first.address.rpartition(".")[0] + ".77"
        with traffic.service(loadBalancerIP=wanted) as service:
            assert service.address == wanted
            service.served()


def test_pods_reach_load_balancers(traffic: World) -> None:
    with traffic.service(ipFamilies=["IPv6"]) as service:
        service.served()
        traffic.nodes.kubectl(
            "run", "caller", "--image=windowbox.local/busybox:1", "--image-pull-policy=Never",
            "--restart=Never", "--command", "--",
            "sh", "-c", f"(echo hello; sleep 1) | nc -w 5 {service.address} 80",
        )  # fmt: skip
        done = "jsonpath={.status.phase}=Succeeded"
        traffic.nodes.kubectl("wait", "pod/caller", f"--for={done}", "--timeout=30s")
        said = traffic.nodes.kubectl("logs", "caller")
        traffic.nodes.kubectl("delete", "pod", "caller", "--wait=false")
        assert "pod=echo-" in said


def _free_node_port(traffic: World) -> int:
    body = {"metadata": {"generateName": "number-"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}}
    found = traffic.api.create(SERVICES, body)
    traffic.delete(f"{SERVICES}/{found['metadata']['name']}")
    return int(found["spec"]["ports"][0]["nodePort"])


def _slice(service: str, addresses: list[str]) -> Manifest:
    return {
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "tcp-80", "port": 8080, "protocol": "TCP"}],
        **_endpoints(addresses),
    }


def _endpoints(addresses: list[str]) -> Manifest:
    return {"endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses]}


def _has_pods(service: Balanced, count: int) -> None:
    """Wait until so many Pods answer."""
    echoclient.becomes(count, lambda: len({service.tcp().pod for _ in range(25)}))


def _is_unanswered(ask: Callable[..., Answer], address: str, port: int) -> None:
    """Wait until nobody answers."""

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return bool(ask(address, port))
        return False

    echoclient.becomes(False, answers)


def _is_removed(address: str) -> None:
    """Wait until the host does not have the address."""
    echoclient.becomes(set(), partial(addresses.present, f"{address}/128"))
