"""Services behind which there is nobody, as far as their EndpointSlices tell."""

from __future__ import annotations

import pytest

from tests.support.lbobjects import service
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge import endpoints
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec.demands import demand

REF = ObjectRef("runtime", "services", "default", "web")
NODE = Backend("node-1", {"IPv4": "10.0.0.1"})


def slice(*conditions: dict[str, bool], family: str = "IPv4") -> Object:
    endpoints = [{"addresses": ["10.1.0.1"], "conditions": one} for one in conditions]
    return Object({"metadata": {"name": "web-1"}, "addressType": family, "endpoints": endpoints})


@pytest.mark.parametrize(
    ("slices", "vacant"),
    [
        pytest.param([], False, id="no-slice-tells-anything"),
        pytest.param([slice()], True, id="a-slice-without-pods"),
        pytest.param([slice({"ready": True})], False, id="a-pod-that-is-ready"),
        pytest.param([slice({"ready": False, "serving": False})], True, id="a-pod-that-is-not-ready"),
        pytest.param([slice({"ready": False, "serving": True})], False, id="a-pod-that-ends-but-serves"),
        pytest.param([slice({})], False, id="a-pod-of-which-nothing-is-known"),
        pytest.param([slice(), slice({"ready": True})], False, id="one-slice-of-two"),
        pytest.param([slice(family="IPv6")], False, id="only-the-other-family-is-told-of"),
    ],
)
def test_clients_are_turned_away_where_it_is_known_that_nobody_serves(
    slices: list[Object], vacant: bool
) -> None:
    found = demand(service(), direct=False)
    (listener,) = endpoints.load_balancer(REF, found, {"IPv4": "192.0.2.1"}, [NODE], slices).listeners
    assert listener.vacant == vacant
    # The nodes are still its nodes: that Pods come and go is no news about them.
    assert [endpoint.name for endpoint in listener.endpoints] == ["node-1"]


@rule("LB-2-idempotent")
def test_what_a_service_asks_for_does_not_change_with_its_pods() -> None:
    found = demand(service(), direct=False)
    some, none = (
        endpoints.load_balancer(REF, found, {"IPv4": "192.0.2.1"}, [NODE], [slice(*pods)])
        for pods in ([{"ready": True}], [])
    )
    assert some.digest == none.digest
