"""The states of load balancers, and the status of the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from tests.support.cases import cases
from windowbox.errors import Unreachable
from windowbox.models.loadbalancers import Endpoint, Family, Listener, LoadBalancer, Target, Targets
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.edge import edgestatus, reporter
from workers.loadbalancer.edge.edgestatus import EdgeStatus
from workers.loadbalancer.edge.reporter import NodeReport, occupied_places, without_endpoints
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.readiness import Applied

Occupied = Mapping[str, tuple[str, ...]]

A: Occupied = {"127.0.9.1": ("80/TCP",)}
B: Occupied = {"127.0.9.2": ("80/TCP",)}
OTHER_PORT: Occupied = {"127.0.9.2": ("81/TCP",)}


def balancer(*listeners: Listener) -> LoadBalancer:
    return LoadBalancer(ObjectRef(RUNTIME, SERVICES.id, "shop", "web"), "uid", listeners)


def applied(occupied: Occupied, address: str = "127.0.9.2", port: int = 80) -> Applied:
    return Applied(balancer(Listener(address, port, "TCP")), {}, occupied)


def reported(occupied: Occupied, uid: str = "uid") -> EdgeState:
    return EdgeState(uid=uid, digest="earlier", since="", occupied=dict(occupied))


@cases(
    "now before known",
    ("nothing", applied({}), None, {}),
    ("the-first", applied(B), None, B),
    ("one-more", applied(B), reported(A), {**A, **B}),
    ("the-same-again", applied(A, "127.0.9.1"), reported(A), A),
    ("all-is-served", applied({}), reported(A), {}),
    ("another-service", applied(B), reported(A, "another"), B),
    ("other-ports", applied(OTHER_PORT, port=81), reported(A), OTHER_PORT),
)
def test_occupied_addresses_are_remembered_until_all_is_served(
    now: Applied, before: EdgeState | None, known: Occupied
) -> None:
    assert occupied_places(now, before) == known


def test_few_addresses_are_remembered() -> None:
    many = {f"127.0.9.{number}": ("80/TCP",) for number in range(100, 120)}
    found = occupied_places(applied(B), reported(many))
    assert len(found) == MOST_OCCUPIED
    assert list(found)[-1] == "127.0.9.2"


V4, V6 = (
    Listener("127.0.9.1", 80, "TCP", (Endpoint("10.0.0.1", 30080, "n1"),)),
    Listener("fd00::1", 80, "TCP"),
)


@cases(
    "listeners unreached",
    ("nothing-asked-for", (), []),
    ("LB-7-families-one", (V4,), []),
    ("LB-7-families-of-two-one-without-nodes", (V4, V6), ["IPv6"]),
    ("LB-7-families-only-the-one-without-nodes", (V6,), ["IPv6"]),
    ("one-port-without-pods", (V4, Listener("127.0.9.1", 81, "TCP")), []),
)
def test_families_without_endpoints(listeners: tuple[Listener, ...], unreached: list[Family]) -> None:
    assert without_endpoints(balancer(*listeners)) == unreached


class Starting:
    """An Envoy whose admin interface does not exist yet."""

    name = "edge"

    async def about(self) -> None:
        raise Unreachable("ask admin.sock for /server_info: no such file")

    health = traffic = about


async def test_an_envoy_that_starts_is_left_out() -> None:
    answered = await edgestatus.answer(b"", [cast(Edge, Starting())], {}, [])
    assert EdgeStatus.model_validate_json(answered).envoys == ()


def test_a_refused_service_is_told_for_each_port_and_keeps_its_nodes() -> None:
    targets: Targets = {"IPv4": (Target("10.0.0.1", "n1"),)}
    refused = replace(balancer(), targets=targets, refused={"80/TCP": "too many", "81/TCP": "too many"})
    nodes = NodeReport(lambda *_: "there are none", dict)
    state = reporter._state(Applied(refused, {}, {}), nodes, None)
    assert state.problems == {"80/TCP": "too many", "81/TCP": "too many"}
    assert (state.backends, state.lacking) == (("n1",), "")
