"""What Services have by their own status, should the bus have forgotten it."""

from __future__ import annotations

from typing import Any

from tests.support.lbobjects import HTTP, service
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.service.adoption import claim, confirmed
from workers.loadbalancer.spec import fields

SHOWN = {"loadBalancer": {"ingress": [{"ip": "10.0.0.20"}]}}
DIRECT = LoadBalancerSettings(direct=("runtime",))


def test_an_address_is_claimed_with_its_ports() -> None:
    without_node_port = HTTP | {"nodePort": 0}
    word = {"loadbalancer.windowbox/share": "word"}
    found = claim(RUNTIME, service(ports=[without_node_port], annotations=word, status=SHOWN), DIRECT)
    assert found.ref == ObjectRef(RUNTIME, SERVICES.id, "default", "web")
    assert (found.addresses, found.ports, found.share) == ((), ("80/TCP",), "word")
    assert (found.shown, found.families) == (("10.0.0.20",), ("IPv4",))


def test_addresses_that_an_edge_serves_are_its_own() -> None:
    found = confirmed(claim(RUNTIME, service(status=SHOWN), DIRECT), ["10.0.0.20"])
    assert (found.addresses, found.shown) == (("10.0.0.20",), ())


def test_a_claim_stays_small_whatever_is_shown() -> None:
    many = {"loadBalancer": {"ingress": [{"ip": f"10.0.{n}.1"} for n in range(250)]}}
    found = claim(RUNTIME, service(status=many, metadata={"creationTimestamp": "2" * 10_000}), DIRECT)
    assert len(found.shown) == 8
    assert len(found.created) <= 32


def test_a_value_for_a_message_is_short_however_deep_it_is() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    assert fields.shown(deep) == '"[[[[[[[...]]]]]]]"'
