"""What Services have by their own status, should the bus have forgotten it."""

from __future__ import annotations

import pytest

from tests.support.lbobjects import HTTP, service
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.service.adoption import claim

SHOWN = {"loadBalancer": {"ingress": [{"ip": "10.0.0.20"}]}}
DIRECT = LoadBalancerSettings(direct=("runtime",))


def test_an_address_is_claimed_with_its_ports() -> None:
    without_node_port = HTTP | {"nodePort": 0}
    word = {"loadbalancer.windowbox/share": "word"}
    found = claim(RUNTIME, service(ports=[without_node_port], annotations=word, status=SHOWN), DIRECT)
    assert found is not None
    assert found.ref == ObjectRef(RUNTIME, SERVICES.id, "default", "web")
    assert (found.addresses, found.ports, found.share) == ((), ("80/TCP",), "word")
    assert (found.shown, found.families) == (("10.0.0.20",), ("IPv4",))
    known = claim(RUNTIME, service(status=SHOWN), DIRECT, ("10.0.0.20",))
    assert known is not None
    assert (known.addresses, known.shown) == (("10.0.0.20",), ())


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(service(), id="no-address-yet"),
        pytest.param(service(type="ClusterIP", status=SHOWN), id="no-load-balancer"),
        pytest.param(service(loadBalancerClass="foreign/one", status=SHOWN), id="of-another-class"),
    ],
)
def test_what_is_not_ours_claims_nothing(found: Object) -> None:
    assert claim(RUNTIME, found, DIRECT) is None
