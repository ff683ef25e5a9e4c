"""Which addresses the edge reports as occupied by other processes of the host."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from windowbox.models.loadbalancers import Listener, LoadBalancer
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.edge.reporter import occupied_places
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState
from workers.loadbalancer.envoy.readiness import Applied

Occupied = Mapping[str, tuple[str, ...]]


def applied(address: str, *ports: int, occupied: Occupied) -> Applied:
    listeners = tuple(Listener(address, port, "TCP") for port in ports)
    balancer = LoadBalancer(
        ObjectRef(RUNTIME, SERVICES.id, "shop", "web"), "uid", listeners, "digest", (address,)
    )
    return Applied(balancer, {}, occupied)


def reported(occupied: Occupied, uid: str = "uid") -> EdgeState:
    return EdgeState(uid=uid, digest="earlier", since="", occupied=dict(occupied))


A: Occupied = {"127.0.9.1": ("80/TCP",)}
B: Occupied = {"127.0.9.2": ("80/TCP",)}


@pytest.mark.parametrize(
    ("now", "before", "known"),
    [
        pytest.param(applied("127.0.9.1", 80, occupied={}), None, {}, id="nothing"),
        pytest.param(applied("127.0.9.1", 80, occupied=A), None, A, id="the-first"),
        pytest.param(applied("127.0.9.2", 80, occupied=B), reported(A), {**A, **B}, id="one-more"),
        pytest.param(applied("127.0.9.1", 80, occupied=A), reported(A), A, id="the-same-again"),
        pytest.param(applied("127.0.9.2", 80, occupied={}), reported(A), {}, id="all-is-served"),
        pytest.param(applied("127.0.9.2", 80, occupied=B), reported(A, "another"), B, id="another-service"),
        pytest.param(
            applied("127.0.9.2", 81, occupied={"127.0.9.2": ("81/TCP",)}),
            reported(A),
            {"127.0.9.2": ("81/TCP",)},
            id="other-ports",
        ),
    ],
)
def test_occupied_addresses_are_remembered_until_all_is_served(
    now: Applied, before: EdgeState | None, known: Occupied
) -> None:
    assert occupied_places(now, before) == known


def test_few_addresses_are_remembered() -> None:
    many = {f"127.0.9.{number}": ("80/TCP",) for number in range(100, 120)}
    found = occupied_places(applied("127.0.9.2", 80, occupied=B), reported(many))
    assert len(found) == MOST_OCCUPIED
    assert list(found)[-1] == "127.0.9.2"
