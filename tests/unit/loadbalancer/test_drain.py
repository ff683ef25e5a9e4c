"""A load balancer that is drained: what is asked for, wanted, and told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.cases import cases
from tests.support.lbobjects import UID, service
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.edge import endpoints
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.service import servicestatus
from workers.loadbalancer.service.servicestatus import Standing
from workers.loadbalancer.spec.demands import demand
from workers.loadbalancer.spec.options import DRAIN

WEB = ObjectRef(RUNTIME, SERVICES.id, "default", "web")
NOW = datetime(2026, 9, 1, tzinfo=UTC)
NODE = Backend("node-1", {"IPv4": "10.0.0.1"})


def drained(value: object) -> Any:
    return service(annotations={DRAIN: value})


@cases("value asked", ("true", "true", True), ("false", "false", False), ("empty", "", False))
def test_the_annotation_asks_for_it(value: str, asked: bool) -> None:
    found = demand(drained(value), direct=False)
    assert (found.drained, found.refusals) == (asked, ())


def test_an_invalid_drain_annotation_is_refused_while_serving() -> None:
    found = demand(drained("maybe"), direct=False)
    [refusal] = found.refusals
    assert (found.drained, found.places, refusal.reason) == (False, ("80/TCP",), "InvalidDrain")
    assert "give true or false" in refusal.note


def test_it_has_no_listeners_and_so_another_digest() -> None:
    addresses = {"IPv4": "127.0.1.2"}
    idle = endpoints.load_balancer(WEB, demand(drained("true"), direct=False), addresses, [NODE])  # type: ignore[arg-type]
    busy = endpoints.load_balancer(WEB, demand(service(), direct=False), addresses, [NODE])  # type: ignore[arg-type]
    assert (idle.uid, idle.listeners) == (UID, ())
    assert len(busy.listeners) == 1
    assert idle.digest != busy.digest


def test_a_drained_service_keeps_its_address_and_says_why() -> None:
    standing = Standing(
        demand(drained("true"), direct=False), {"IPv4": "127.0.1.2"}, {}, waiting=False, backends=False
    )
    patch = servicestatus.patch(service(), standing, NOW, conditions=True)
    assert [entry["ip"] for entry in patch["loadBalancer"]["ingress"]] == ["127.0.1.2"]
    serving = next(one for one in patch["conditions"] if one["type"] == "LoadBalancerServing")
    assert (serving["status"], serving["reason"]) == ("False", "Drained")
    assert DRAIN in serving["message"]
