"""What cloud-controller-manager-local does wrong, by rules LB-11-*, and windowbox does not."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

from tests.host.traffic import clients
from tests.host.traffic.world import SERVICES, World, ingress, shows, tcp, udp
from tests.support import echoclient
from tests.support.rules import rule
from workers.loadbalancer.envoy import bootstrap, protobuf


@rule("LB-11-5", "LB-11-9", "LB-1-resync", "LB-5-vanished")
def test_an_envoy_that_vanished_is_back_with_all_addresses(traffic: World) -> None:
    with traffic.service(tcp(), udp()) as service:
        echoclient.until(partial(clients.tcp, service.address, 80))
        os.kill(_envoy(traffic), signal.SIGKILL)
        with traffic.service() as newcomer:
            assert newcomer.address != service.address
        echoclient.until(partial(clients.tcp, service.address, 80))
        echoclient.until(partial(clients.udp, service.address, 80))
        assert ingress(service.read())[0]["ip"] == service.address


@rule("LB-11-7")
def test_no_program_is_run_to_ask_for_health(traffic: World) -> None:
    with traffic.service(), traffic.service() as service:
        echoclient.until(partial(clients.tcp, service.address, 80))
        before = _children_ended(traffic)
        # Nodes are asked every three seconds: until they have been, connections are made.
        with traffic.service(annotated={"idle_timeout": "4s"}) as patient:
            echoclient.until(partial(clients.tcp, patient.address, 80))
            # On a busy machine Envoy may leave a connection open that began right after its listener did.
            assert any(_is_closed_when_idle(patient.address) for _ in range(5))
        assert _children_ended(traffic) == before


@rule("LB-11-8", "LB-15-6")
def test_a_service_with_many_ports_costs_no_watches_of_files(traffic: World) -> None:
    with traffic.service():
        before = _inotify_instances(_envoy(traffic))
        numbers = range(2000, 2100)
        with traffic.service(
            *[tcp(number) for number in numbers], ready=shows(*[f"{n}/TCP" for n in numbers])
        ):
            assert _inotify_instances(_envoy(traffic)) == before
        assert before < 10


@rule("LB-11-13", "LB-1-gone")
def test_a_service_that_vanished_while_nobody_looked_leaves_no_orphan(traffic: World) -> None:
    ours = ("worker-1", "watcher-1", "patcher-1")
    sandbox, call = traffic.nodes.sandbox, traffic.nodes.call
    body = {"name": "vanishes", "ports": [tcp()], "annotated": {}, "spec": {}}
    traffic.create(**body)  # type: ignore[arg-type]
    address = ingress(traffic.wait("vanishes", ingress))[0]["ip"]
    echoclient.until(partial(clients.tcp, address, 80))
    for name in ours:
        call(sandbox.stop(name))
    path = f"{SERVICES}/vanishes"
    traffic.merge(path, {"metadata": {"finalizers": None}})
    traffic.delete(path)
    traffic.gone("vanishes")
    assert _listeners(traffic, address)
    for name in reversed(ours):
        call(sandbox.start(name))
    echoclient.until(partial(_is_refused, address))
    echoclient.until(partial(_has_no_listeners, traffic, address))
    with traffic.service(loadBalancerIP=address) as another:
        assert another.address == address


def _envoy(traffic: World) -> int:
    return int((_place(traffic) / "envoy.pid").read_text())


def _place(traffic: World) -> Path:
    """The folder of the Envoy that was started last."""
    return max((traffic.folder / "edge" / "edge").iterdir(), key=lambda path: int(path.name))


def _listeners(traffic: World, address: str) -> list[str]:
    entries = protobuf.entries((_place(traffic) / bootstrap.LISTENERS).read_bytes())
    found = map(protobuf.resource, entries)
    return [one["name"] for one in found if one["address"]["socket_address"]["address"] == address]


def _has_no_listeners(traffic: World, address: str) -> None:
    assert _listeners(traffic, address) == []


def _inotify_instances(pid: int) -> int:
    return sum(_leads_to(handle) == "anon_inode:inotify" for handle in Path(f"/proc/{pid}/fd").iterdir())


def _leads_to(handle: Path) -> str:
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
        return os.readlink(handle)
    return ""


def _children_ended(traffic: World) -> list[int]:
    """Page faults of children that were waited for: they only grow when a program was run."""
    worker = traffic.nodes.sandbox.state.children["worker-1"].pid
    assert worker
    return [_faults_of_children(pid) for pid in (worker, _envoy(traffic))]


def _faults_of_children(pid: int) -> int:
    # The name of the program, in brackets, may hold anything; the eleventh value stands for `cminflt`.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def _is_refused(address: str) -> None:
    assert clients.outcome(address, 80) == "refused"


def _is_closed_when_idle(address: str) -> bool:
    with clients.connected(address, 80, timeout=12) as connection, contextlib.suppress(TimeoutError):
        clients.greeted(connection)
        return connection.recv(1) == b""
    return False
