"""In which families a load balancer leads nowhere."""

from __future__ import annotations

import pytest

from windowbox.models.loadbalancers import Endpoint, Family, Listener, LoadBalancer
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.edge.reporter import without_endpoints

NODE = (Endpoint("10.0.0.1", 30080, "n1"),)
V4, V6 = Listener("127.0.9.1", 80, "TCP", NODE), Listener("fd00::1", 80, "TCP")


@pytest.mark.parametrize(
    ("listeners", "unreached"),
    [
        pytest.param((), [], id="nothing-asked-for"),
        pytest.param((V4,), [], id="LB-7-families-one"),
        pytest.param((V4, V6), ["IPv6"], id="LB-7-families-of-two-one-without-nodes"),
        pytest.param((V6,), ["IPv6"], id="LB-7-families-only-the-one-without-nodes"),
        pytest.param((V4, Listener("127.0.9.1", 81, "TCP")), [], id="one-port-without-pods"),
    ],
)
def test_families_without_endpoints(listeners: tuple[Listener, ...], unreached: list[Family]) -> None:
    ref = ObjectRef(RUNTIME, SERVICES.id, "shop", "web")
    assert without_endpoints(LoadBalancer(ref, "uid", listeners)) == unreached
