"""Which Services are ours, and which of their changes start a run: the contract's table, row by row."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.support.cases import cases
from tests.support.lbobjects import DNS, HTTP, nonsense, service
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer import loadbalancerpool
from workers.loadbalancer.spec import selection

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
HELD: dict[str, Any] = {"finalizers": [FINALIZER]}
SERVED: dict[str, Any] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1", "ipMode": "Proxy"}]}}
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
FOREIGN = "example.com/other"
CLUSTER_IP = service(type="ClusterIP")


def said(status: str, **other: str) -> dict[str, Any]:
    condition = {"type": "LoadBalancerServing", "status": status, "reason": "Serving", **other}
    return SERVED | {"conditions": [condition]}


def port(**other: Any) -> Object:
    return service(ports=[HTTP | other])


def annotated(**annotations: str) -> Object:
    return service(annotations=annotations)


@cases(
    "old new",
    ("LB-4-flipped-on", CLUSTER_IP, service()),
    ("LB-4-flipped-off", service(), CLUSTER_IP),
    ("LB-4-flipped-by-class", service(loadBalancerClass=FOREIGN), service()),
    ("LB-4-ranges", service(), service(loadBalancerSourceRanges=["10.0.0.0/8"])),
    ("LB-4-ranges-none-is-not-empty", service(), service(loadBalancerSourceRanges=[])),
    (
        "LB-4-ranges-order",
        service(loadBalancerSourceRanges=["10.0.0.0/8", "fd00::/8"]),
        service(loadBalancerSourceRanges=["fd00::/8", "10.0.0.0/8"]),
    ),
    ("LB-4-ports-number", service(), service(ports=[HTTP, DNS])),
    ("LB-4-ports-order", service(ports=[HTTP, DNS]), service(ports=[DNS, HTTP])),
    ("LB-4-ports-name", port(), port(name="web")),
    ("LB-4-ports-protocol", port(), port(protocol="UDP")),
    ("LB-4-ports-port", port(), port(port=81)),
    ("LB-4-ports-node-port", port(), port(nodePort=30081)),
    ("LB-4-ports-target", port(), port(targetPort="http")),
    ("LB-4-ports-app-protocol", port(), port(appProtocol="ssh")),
    ("LB-4-affinity", service(), service(sessionAffinity="ClientIP")),
    (
        "LB-4-affinity-configuration",
        service(),
        service(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}}),
    ),
    ("LB-4-ip", service(), service(loadBalancerIP="10.0.0.1")),
    ("LB-4-external", service(), service(externalIPs=["10.0.0.1"])),
    (
        "LB-4-external-order",
        service(externalIPs=["10.0.0.1", "10.0.0.2"]),
        service(externalIPs=["10.0.0.2", "10.0.0.1"]),
    ),
    ("LB-4-annotations", service(), annotated(anything="at all")),
    ("LB-4-annotations-value", annotated(key="a"), annotated(key="b")),
    ("LB-4-annotations-gone", annotated(key="a"), service()),
    ("LB-4-uid", service(), service(metadata={"uid": "other"})),
    ("LB-4-policy", service(), service(externalTrafficPolicy="Local")),
    ("LB-4-healthport", service(healthCheckNodePort=31234), service(healthCheckNodePort=31235)),
    ("LB-4-families", service(), service(ipFamilies=["IPv4", "IPv6"])),
    ("LB-4-status-wiped", service(status=SERVED), service()),
    (
        "LB-4-status-changed",
        service(status=SERVED),
        service(status={"loadBalancer": {"ingress": [{"ip": "10.0.0.9", "ipMode": "Proxy"}]}}),
    ),
    ("LB-4-status-conditions-wiped", service(status=said("True")), service(status=SERVED)),
    ("LB-4-status-condition-changed", service(status=said("True")), service(status=said("False"))),
    ("LB-4-status-finalizer-taken-off", service(metadata=HELD), service()),
    ("LB-1-cleanup-deleted", service(metadata=HELD), service(metadata=HELD | DELETED)),
    ("LB-1-added-wanting", None, service()),
    ("LB-1-added-to-be-cleaned-up", None, service(metadata=HELD, type="ClusterIP")),
)
def test_a_change_counts(old: Object | None, new: Object) -> None:
    assert loadbalancerpool.triggers(old, new, ())


@cases(
    "old new",
    ("LB-1-added-other-type", None, CLUSTER_IP),
    ("LB-1-resync-nothing-changed", service(), service()),
    (
        "LB-4-neither",
        CLUSTER_IP,
        service(type="NodePort", annotations={"a": "b"}, ports=[DNS], metadata={"uid": "other"}),
    ),
    (
        "LB-4-neither-foreign",
        service(loadBalancerClass=FOREIGN),
        service(loadBalancerClass=FOREIGN, ports=[DNS]),
    ),
    ("LB-4-others-labels", service(), service(metadata={"labels": {"a": "b"}})),
    ("LB-4-others-selector", service(), service(selector={"app": "web"})),
    ("LB-4-others-cluster-ips", service(), service(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"])),
    ("LB-4-others-internal-policy", service(), service(internalTrafficPolicy="Local")),
    ("LB-4-others-not-ready", service(), service(publishNotReadyAddresses=True)),
    ("LB-4-others-allocation", service(), service(allocateLoadBalancerNodePorts=False)),
    ("LB-4-others-distribution", service(), service(trafficDistribution="PreferClose")),
    ("LB-4-others-version", service(), service(metadata={"resourceVersion": "2"})),
    ("LB-4-others-our-finalizer-put-on", service(), service(metadata=HELD)),
    (
        "LB-4-others-foreign-finalizer",
        service(metadata={"finalizers": [FINALIZER, "other.io/x"]}),
        service(metadata=HELD),
    ),
    ("LB-4-others-our-own-first-status", service(), service(status=SERVED)),
    (
        "LB-4-others-conditions",
        service(status=SERVED),
        service(status=SERVED | {"conditions": [{"type": "Foreign"}]}),
    ),
    (
        "LB-4-others-times-of-conditions",
        service(status=said("True")),
        service(status=said("True", lastTransitionTime="2026-01-01T00:00:00Z")),
    ),
    ("LB-4-others-our-first-condition", service(status=SERVED), service(status=said("True"))),
    ("LB-4-families-order", service(ipFamilies=["IPv4", "IPv6"]), service(ipFamilies=["IPv6", "IPv4"])),
)
def test_a_change_does_not_count(old: Object | None, new: Object) -> None:
    assert not loadbalancerpool.triggers(old, new, ())


@rule("LB-4-flipped")
def test_a_new_service_of_the_name_counts_though_it_wants_nothing() -> None:
    assert loadbalancerpool.triggers(service(), service(metadata={"uid": "other"}, type="ClusterIP"), ())


@rule("LB-1-class")
def test_classes_of_ours_are_compared_like_none() -> None:
    old, new = (service(loadBalancerClass="ours", ports=[port]) for port in (HTTP, DNS))
    assert loadbalancerpool.triggers(old, new, ("ours",))
    assert not loadbalancerpool.triggers(old, new, ("theirs",))


@given(nonsense, nonsense)
def test_nonsense_raises_no_error(old: Object, new: Object) -> None:
    assert isinstance(loadbalancerpool.triggers(old, new, ()), bool)
    assert not loadbalancerpool.triggers(new, new, ()) or selection.needs_cleanup(new)


@cases(
    "found expected",
    ("LB-1-wants", service(), True),
    ("LB-1-wants-other-type", service(type="ClusterIP"), False),
    ("LB-1-wants-node-port", service(type="NodePort"), False),
    ("LB-1-wants-no-type", service(type=None), False),
    ("LB-1-class-foreign", service(loadBalancerClass=FOREIGN), False),
    ("LB-1-class-ours", service(loadBalancerClass="windowbox"), True),
    ("LB-1-class-empty-is-one", service(loadBalancerClass=""), False),
    ("LB-1-class-nonsense", service(loadBalancerClass=["windowbox"]), False),
    ("LB-1-class-not-type", service(type="ClusterIP", loadBalancerClass="windowbox"), False),
)
def test_a_service_wants_a_load_balancer_of_ours(found: Object, expected: bool) -> None:
    assert selection.is_ours(found, ("windowbox",)) is expected


@rule("LB-1-class")
def test_no_class_is_ours_by_itself() -> None:
    assert not selection.is_ours(service(loadBalancerClass="windowbox"), ())


@cases(
    "found expected",
    ("LB-1-cleanup-not-while-wanted", service(metadata=HELD), False),
    ("LB-1-cleanup-deleted", service(metadata={"finalizers": ["other.io/x", FINALIZER], **DELETED}), True),
    ("LB-1-cleanup-other-type", service(metadata=HELD, type="ClusterIP"), True),
    ("LB-1-cleanup-not-held", service(metadata=DELETED), False),
    ("LB-1-cleanup-no-list", service(metadata=DELETED | {"finalizers": None}), False),
    ("LB-1-cleanup-never-was", service(type="ClusterIP"), False),
    ("LB-1-foreign-is-left-alone", service(metadata=HELD, loadBalancerClass=FOREIGN), False),
    ("LB-1-foreign-deleted", service(metadata=HELD | DELETED, loadBalancerClass=FOREIGN), True),
)
def test_services_no_longer_ours_are_cleaned_up(found: Object, expected: bool) -> None:
    assert selection.needs_cleanup(found) is expected


@given(nonsense)
def test_any_service_is_ours_or_not(found: Object) -> None:
    assert isinstance(selection.is_ours(found, ("windowbox",)), bool)
    assert isinstance(selection.needs_cleanup(found), bool)
