"""Which changes of a Service start a run: the table of the contract, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.lbobjects import DNS, HTTP, nonsense, service
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.service import servicemapping
from workers.loadbalancer.spec import selection

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
HELD: dict[str, Any] = {"finalizers": [FINALIZER]}
SERVED: dict[str, Any] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1", "ipMode": "Proxy"}]}}
CLUSTER_IP = service(type="ClusterIP")


def _said(status: str, **other: str) -> dict[str, Any]:
    condition = {"type": "LoadBalancerServing", "status": status, "reason": "Serving", **other}
    return SERVED | {"conditions": [condition]}


def _port(**other: Any) -> Object:
    return service(ports=[HTTP | other])


def _annotated(**annotations: str) -> Object:
    return service(annotations=annotations)


COUNTING = [
    pytest.param(CLUSTER_IP, service(), id="LB-4-flipped-on"),
    pytest.param(service(), CLUSTER_IP, id="LB-4-flipped-off"),
    pytest.param(service(loadBalancerClass="example.com/other"), service(), id="LB-4-flipped-by-class"),
    pytest.param(service(), service(loadBalancerSourceRanges=["10.0.0.0/8"]), id="LB-4-ranges"),
    pytest.param(service(), service(loadBalancerSourceRanges=[]), id="LB-4-ranges-none-is-not-empty"),
    pytest.param(
        service(loadBalancerSourceRanges=["10.0.0.0/8", "fd00::/8"]),
        service(loadBalancerSourceRanges=["fd00::/8", "10.0.0.0/8"]),
        id="LB-4-ranges-order",
    ),
    pytest.param(service(), service(ports=[HTTP, DNS]), id="LB-4-ports-number"),
    pytest.param(service(ports=[HTTP, DNS]), service(ports=[DNS, HTTP]), id="LB-4-ports-order"),
    pytest.param(_port(), _port(name="web"), id="LB-4-ports-name"),
    pytest.param(_port(), _port(protocol="UDP"), id="LB-4-ports-protocol"),
    pytest.param(_port(), _port(port=81), id="LB-4-ports-port"),
    pytest.param(_port(), _port(nodePort=30081), id="LB-4-ports-node-port"),
    pytest.param(_port(), _port(targetPort="http"), id="LB-4-ports-target"),
    pytest.param(_port(), _port(appProtocol="ssh"), id="LB-4-ports-app-protocol"),
    pytest.param(service(), service(sessionAffinity="ClientIP"), id="LB-4-affinity"),
    pytest.param(
        service(),
        service(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}}),
        id="LB-4-affinity-configuration",
    ),
    pytest.param(service(), service(loadBalancerIP="10.0.0.1"), id="LB-4-ip"),
    pytest.param(service(), service(externalIPs=["10.0.0.1"]), id="LB-4-external"),
    pytest.param(
        service(externalIPs=["10.0.0.1", "10.0.0.2"]),
        service(externalIPs=["10.0.0.2", "10.0.0.1"]),
        id="LB-4-external-order",
    ),
    pytest.param(service(), _annotated(anything="at all"), id="LB-4-annotations"),
    pytest.param(_annotated(key="a"), _annotated(key="b"), id="LB-4-annotations-value"),
    pytest.param(_annotated(key="a"), service(), id="LB-4-annotations-gone"),
    pytest.param(service(), service(metadata={"uid": "other"}), id="LB-4-uid"),
    pytest.param(service(), service(externalTrafficPolicy="Local"), id="LB-4-policy"),
    pytest.param(
        service(healthCheckNodePort=31234), service(healthCheckNodePort=31235), id="LB-4-healthport"
    ),
    pytest.param(service(), service(ipFamilies=["IPv4", "IPv6"]), id="LB-4-families"),
    pytest.param(service(status=SERVED), service(), id="LB-4-status-wiped"),
    pytest.param(
        service(status=SERVED),
        service(status={"loadBalancer": {"ingress": [{"ip": "10.0.0.9", "ipMode": "Proxy"}]}}),
        id="LB-4-status-changed",
    ),
    pytest.param(service(status=_said("True")), service(status=SERVED), id="LB-4-status-conditions-wiped"),
    pytest.param(
        service(status=_said("True")), service(status=_said("False")), id="LB-4-status-condition-changed"
    ),
    pytest.param(service(metadata=HELD), service(), id="LB-4-status-finalizer-taken-off"),
    pytest.param(
        service(metadata=HELD),
        service(metadata=HELD | {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        id="LB-1-cleanup-deleted",
    ),
    pytest.param(None, service(), id="LB-1-added-wanting"),
    pytest.param(None, service(metadata=HELD, type="ClusterIP"), id="LB-1-added-to-be-cleaned-up"),
]

NOT_COUNTING = [
    pytest.param(None, CLUSTER_IP, id="LB-1-added-other-type"),
    pytest.param(service(), service(), id="LB-1-resync-nothing-changed"),
    pytest.param(
        CLUSTER_IP,
        service(type="NodePort", annotations={"a": "b"}, ports=[DNS], metadata={"uid": "other"}),
        id="LB-4-neither",
    ),
    pytest.param(
        service(loadBalancerClass="example.com/other"),
        service(loadBalancerClass="example.com/other", ports=[DNS]),
        id="LB-4-neither-foreign",
    ),
    pytest.param(service(), service(metadata={"labels": {"a": "b"}}), id="LB-4-others-labels"),
    pytest.param(service(), service(selector={"app": "web"}), id="LB-4-others-selector"),
    pytest.param(
        service(), service(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"]), id="LB-4-others-cluster-ips"
    ),
    pytest.param(service(), service(internalTrafficPolicy="Local"), id="LB-4-others-internal-policy"),
    pytest.param(service(), service(publishNotReadyAddresses=True), id="LB-4-others-not-ready"),
    pytest.param(service(), service(allocateLoadBalancerNodePorts=False), id="LB-4-others-allocation"),
    pytest.param(service(), service(trafficDistribution="PreferClose"), id="LB-4-others-distribution"),
    pytest.param(service(), service(metadata={"resourceVersion": "2"}), id="LB-4-others-version"),
    pytest.param(service(), service(metadata=HELD), id="LB-4-others-our-finalizer-put-on"),
    pytest.param(
        service(metadata={"finalizers": [FINALIZER, "other.io/x"]}),
        service(metadata=HELD),
        id="LB-4-others-foreign-finalizer",
    ),
    pytest.param(service(), service(status=SERVED), id="LB-4-others-our-own-first-status"),
    pytest.param(
        service(status=SERVED),
        service(status=SERVED | {"conditions": [{"type": "Foreign"}]}),
        id="LB-4-others-conditions",
    ),
    pytest.param(
        service(status=_said("True")),
        service(status=_said("True", lastTransitionTime="2026-01-01T00:00:00Z")),
        id="LB-4-others-times-of-conditions",
    ),
    pytest.param(service(status=SERVED), service(status=_said("True")), id="LB-4-others-our-first-condition"),
    pytest.param(
        service(ipFamilies=["IPv4", "IPv6"]), service(ipFamilies=["IPv6", "IPv4"]), id="LB-4-families-order"
    ),
]


@pytest.mark.parametrize(("old", "new"), COUNTING)
def test_a_change_counts(old: Object | None, new: Object) -> None:
    assert servicemapping.triggers(old, new, ())


@pytest.mark.parametrize(("old", "new"), NOT_COUNTING)
def test_a_change_does_not_count(old: Object | None, new: Object) -> None:
    assert not servicemapping.triggers(old, new, ())


@rule("LB-4-flipped")
def test_a_new_service_of_the_name_counts_though_it_wants_nothing() -> None:
    assert servicemapping.triggers(service(), service(metadata={"uid": "other"}, type="ClusterIP"), ())


@rule("LB-1-class")
def test_classes_of_ours_are_compared_like_none() -> None:
    old, new = (service(loadBalancerClass="ours", ports=[port]) for port in (HTTP, DNS))
    assert servicemapping.triggers(old, new, ("ours",))
    assert not servicemapping.triggers(old, new, ("theirs",))


@given(nonsense, nonsense)
def test_nonsense_gets_an_answer(old: Object, new: Object) -> None:
    assert isinstance(servicemapping.triggers(old, new, ()), bool)
    assert not servicemapping.triggers(new, new, ()) or selection.needs_cleanup(new)
