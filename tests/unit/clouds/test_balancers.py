"""Load balancers of six clouds: annotations, and what clients see."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clouds import table
from commands import pages
from tests.support.cases import cases
from tests.support.lbobjects import DNS, UID, service
from tests.support.rules import rule
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.spec import cloudterms, demands, hostnames, selection
from workers.loadbalancer.spec.demands import Demand

REGION = "eu-central-1"
AWS, NODES = "service.beta.kubernetes.io/aws-load-balancer-", ("10.250.0.0/16", "100.96.0.0/11")
AZURE = "service.beta.kubernetes.io/azure-load-balancer-"
ALI = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-"
OPENSTACK, INTERNAL = (
    "loadbalancer.openstack.org/",
    "service.beta.kubernetes.io/openstack-internal-load-balancer",
)
ATTRIBUTES = f"{AWS}target-group-attributes"
GCP = "networking.gke.io/load-balancer-type"
NLB: dict[str, Any] = {"loadBalancerClass": "service.k8s.aws/nlb"}
PUBLIC = {f"{AWS}scheme": "internet-facing"}
DUAL = ["IPv4", "IPv6"]
INSIDE: dict[str, Any] = {"allowed": NODES, "range": "internal"}


def facts(cloud: str, **more: Any) -> CloudFacts:
    return CloudFacts(type=cloud, **{"region": REGION, "networks": NODES, **more})


def asked(cloud: str, annotations: dict[str, Any] | None = None, **spec: Any) -> Demand:
    classes = spec.pop("classes", ())
    found = service(annotations=annotations or {}, **spec)
    return demands.demand_in("shoot", found, LoadBalancerSettings(), facts(cloud, classes=classes))


USUAL: dict[str, Any] = {
    "families": ("IPv4",),
    "allowed": None,
    "proxy_protocol": None,
    "idle_timeout": None,
    "max_connections": None,
    "requested": (),
    "range": "",
    "translates": False,
    "hairpin": (),
    "fatal": False,
    "backends": None,
}


@cases(
    "cloud annotations spec differs",
    ("aws-usual", "aws", {}, {}, {}),
    ("aws-ip-families-are-ignored", "aws", {}, {"ipFamilies": DUAL}, {}),
    ("aws-internal", "aws", {f"{AWS}internal": "true"}, {}, INSIDE),
    ("aws-internal-false", "aws", {f"{AWS}internal": "false"}, {}, {}),
    ("aws-proxy-protocol-of-classic", "aws", {f"{AWS}proxy-protocol": "*"}, {}, {"proxy_protocol": 1}),
    ("aws-idle", "aws", {f"{AWS}connection-idle-timeout": "90"}, {}, {"idle_timeout": 90.0}),
    ("aws-nlb-of-cloud-controller", "aws", {f"{AWS}type": "nlb"}, {}, {"hairpin": ("IPv6",)}),
    ("AWS-X4-class", "aws", PUBLIC, NLB, {"hairpin": ("IPv6",)}),
    ("AWS-X4-internal-by-default", "aws", {}, NLB, {**INSIDE, "hairpin": ("IPv4", "IPv6")}),
    (
        "AWS-X1",
        "aws",
        {
            **PUBLIC,
            f"{AWS}type": "external",
            f"{AWS}ip-address-type": "dualstack",
            f"{AWS}nlb-target-type": "instance",
            f"{AWS}proxy-protocol": "*",
        },
        {},
        {
            "families": ("IPv4", "IPv6"),
            "translates": True,
            "backends": "IPv4",
            "proxy_protocol": 2,
            "hairpin": ("IPv6",),
        },
    ),
    (
        "AWS-X1-backends-of-ipv6",
        "aws",
        {**PUBLIC, f"{AWS}ip-address-type": "dualstack"},
        {**NLB, "ipFamilies": ["IPv6"]},
        {"families": ("IPv4", "IPv6"), "translates": True, "backends": "IPv6", "hairpin": ("IPv6",)},
    ),
    (
        "AWS-X5-preserve-off",
        "aws",
        {ATTRIBUTES: "deregistration_delay=5,preserve_client_ip.enabled=false"},
        NLB,
        INSIDE,
    ),
    (
        "AWS-X5-proxy-by-attribute",
        "aws",
        {**PUBLIC, ATTRIBUTES: "proxy_protocol_v2.enabled=true"},
        NLB,
        {"proxy_protocol": 2, "hairpin": ("IPv6",)},
    ),
    ("azure-usual", "azure", {}, {"ipFamilies": DUAL}, {"families": ("IPv4", "IPv6")}),
    ("azure-internal", "azure", {f"{AZURE}internal": "true"}, {}, INSIDE),
    ("azure-address", "azure", {f"{AZURE}ipv4": "10.9.0.7"}, {}, {"requested": ("10.9.0.7",)}),
    ("azure-idle", "azure", {f"{AZURE}tcp-idle-timeout": "4"}, {}, {"idle_timeout": 240.0}),
    ("gcp-usual", "gcp", {}, {}, {}),
    ("gcp-internal", "gcp", {GCP: "Internal"}, {}, INSIDE),
    ("gcp-internal-formerly", "gcp", {"cloud.google.com/load-balancer-type": "internal"}, {}, INSIDE),
    ("gcp-external", "gcp", {GCP: "External"}, {}, {}),
    ("openstack-usual", "openstack", {}, {"ipFamilies": ["IPv6", "IPv4"]}, {"families": ("IPv6",)}),
    ("openstack-internal", "openstack", {INTERNAL: "true"}, {"classes": ("gold",)}, INSIDE),
    ("OST-C7", "openstack", {}, {"classes": ("gold", "lead")}, {"range": "gold"}),
    ("OST-C2", "openstack", {f"{OPENSTACK}class": "lead"}, {"classes": ("gold", "lead")}, {"range": "lead"}),
    ("openstack-proxy", "openstack", {f"{OPENSTACK}proxy-protocol": "true"}, {}, {"proxy_protocol": 1}),
    ("openstack-proxy-v2", "openstack", {f"{OPENSTACK}proxy-protocol": "v2"}, {}, {"proxy_protocol": 2}),
    ("openstack-idle", "openstack", {f"{OPENSTACK}timeout-client-data": "5000"}, {}, {"idle_timeout": 5.0}),
    ("openstack-limit", "openstack", {f"{OPENSTACK}connection-limit": "7"}, {}, {"max_connections": 7}),
    ("openstack-no-limit", "openstack", {f"{OPENSTACK}connection-limit": "-1"}, {}, {}),
    ("alicloud-usual", "alicloud", {}, {"ipFamilies": DUAL}, {}),
    ("alicloud-intranet", "alicloud", {f"{ALI}address-type": "intranet"}, {}, INSIDE),
    ("alicloud-ipv6", "alicloud", {f"{ALI}ip-version": "ipv6"}, {}, {"families": ("IPv6",)}),
    ("alicloud-proxy", "alicloud", {f"{ALI}proxy-protocol": "on"}, {}, {"proxy_protocol": 2}),
    ("equinixmetal-usual", "equinixmetal", {}, {"ipFamilies": DUAL}, {"families": ("IPv4", "IPv6")}),
)
def test_what_a_cloud_makes_of_annotations(
    cloud: str, annotations: dict[str, Any], spec: dict[str, Any], differs: dict[str, Any]
) -> None:
    found = asked(cloud, annotations, **spec)
    assert {field: getattr(found, field) for field in USUAL} == USUAL | differs
    assert found.refusals == ()


@cases(
    "cloud annotations spec words",
    (
        "AWS-X4-ip-targets",
        "aws",
        {f"{AWS}nlb-target-type": "ip"},
        NLB,
        'nlb-target-type is "ip": give instance',
    ),
    ("aws-udp-of-classic", "aws", {}, {"ports": [DNS]}, "carries no UDP: set spec.loadBalancerClass"),
    ("aws-scheme", "aws", {f"{AWS}scheme": "private"}, NLB, "give internal or internet-facing"),
    ("aws-type", "aws", {f"{AWS}type": "nlb-ip"}, {}, "give nlb or external"),
    ("aws-proxy-protocol", "aws", {f"{AWS}proxy-protocol": "true"}, {}, "give *"),
    ("aws-tls", "aws", {f"{AWS}ssl-cert": "arn:aws:acm:x"}, {}, "TLS is not terminated"),
    ("aws-idle-of-days", "aws", {f"{AWS}connection-idle-timeout": "9" * 5000}, {}, "give 1 to 4000 seconds"),
    (
        "aws-attributes",
        "aws",
        {ATTRIBUTES: "preserve_client_ip.enabled=no"},
        NLB,
        "give true",
    ),
    ("azure-internal", "azure", {f"{AZURE}internal": "yes"}, {}, "give true or false"),
    ("gcp-type", "gcp", {GCP: "Regional"}, {}, "give Internal or External"),
    (
        "OST-C2-unknown",
        "openstack",
        {f"{OPENSTACK}class": "x" * 999},
        {"classes": ("gold",)},
        "the Shoot are gold",
    ),
    ("OST-C2-none", "openstack", {f"{OPENSTACK}class": "gold"}, {}, "the Shoot are none"),
    ("openstack-http", "openstack", {f"{OPENSTACK}x-forwarded-for": "true"}, {}, "use proxy-protocol"),
    ("alicloud-type", "alicloud", {f"{ALI}address-type": "vpc"}, {}, "give internet or intranet"),
    ("no-text", "azure", {f"{AZURE}internal": {"a": ["b"] * 9999}}, {}, "give true or false"),
)
def test_what_a_cloud_cannot_do_is_refused(
    cloud: str, annotations: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    """A guess might show a private Service to all, or hide the PROXY header that its backends expect."""
    found = asked(cloud, annotations, **spec)
    [refusal] = found.refusals
    assert (refusal.reason, found.ports) == ("CloudOptionNotSupported", ())
    assert words in refusal.note
    assert len(refusal.note) < 300


@cases(
    "ranges allowed",
    ("inside", ["10.250.7.0/24"], ("10.250.7.0/24",)),
    ("around", ["10.0.0.0/8"], ("10.250.0.0/16",)),
    ("outside", ["192.0.2.0/24", "fd00::/8"], ()),
    ("all", ["0.0.0.0/0"], NODES),
)
def test_source_ranges_do_not_open_an_internal_one(ranges: list[str], allowed: tuple[str, ...]) -> None:
    found = asked("gcp", {GCP: "Internal"}, loadBalancerSourceRanges=ranges)
    assert found.allowed == allowed


def test_without_known_networks_an_internal_one_is_in_its_range_only() -> None:
    found = service(annotations={GCP: "Internal"})
    asked = demands.demand_in("shoot", found, LoadBalancerSettings(), CloudFacts(type="gcp"))
    assert (asked.allowed, asked.range) == (None, "internal")


def test_options_of_ours_decide_over_those_of_clouds() -> None:
    found = asked("aws", {f"{AWS}proxy-protocol": "*", "loadbalancer.windowbox/proxy-protocol": "v2"})
    assert found.proxy_protocol == 2


def test_elsewhere_annotations_of_clouds_mean_nothing() -> None:
    found = service(annotations={f"{AWS}internal": "true", f"{AWS}nlb-target-type": "ip"})
    plain = demands.demand_in("shoot", service(), LoadBalancerSettings())
    for cloud in (None, CloudFacts(type="a-cloud-of-tomorrow")):
        assert demands.demand_in("shoot", found, LoadBalancerSettings(), cloud) == plain


@rule("AWS-X4")
def test_the_class_of_a_cloud_is_served_there_only() -> None:
    found = service(**NLB)
    assert selection.is_ours(found, cloudterms.classes(facts("aws")))
    assert not selection.is_ours(found, cloudterms.classes(facts("gcp")))
    assert not selection.is_ours(found, cloudterms.classes(None))
    all_classes = {name for cloud in table.TYPES for name in cloudterms.classes(facts(cloud))}
    assert all_classes == set(table.BALANCER_CLASSES)


@cases(
    "annotations spec name",
    ("classic", {}, {}, "ad9607e19f88f11e6a51842010a80019-167837953.eu-central-1.elb.amazonaws.com"),
    (
        "classic-internal",
        {f"{AWS}internal": "true"},
        {},
        "internal-ad9607e19f88f11e6a51842010a80019-167837953.eu-central-1.elb.amazonaws.com",
    ),
    (
        "network",
        PUBLIC,
        NLB,
        r"k8s-default-web-[0-9a-f]{10}-0a010101[0-9a-f]{8}.elb.eu-central-1.amazonaws.com",
    ),
)
def test_host_names_of_aws(annotations: dict[str, str], spec: dict[str, Any], name: str) -> None:
    found = hostnames.hostname(asked("aws", annotations, **spec).hostname, "10.1.1.1")
    assert re.fullmatch(name, found)
    assert hostnames.address_in(found) == "10.1.1.1"


@rule("AWS-X2")
def test_another_family_or_scheme_is_another_load_balancer() -> None:
    dual = {**PUBLIC, f"{AWS}ip-address-type": "dualstack"}
    names = {asked("aws", given, **NLB).hostname for given in ({}, PUBLIC, dual)}
    assert len(names) == 3


@pytest.mark.parametrize(
    "name", ["", "web.example.com", "web-12.example.com.", f"{UID}.elb", "a-99999999999.elb"]
)
def test_other_names_contain_no_address(name: str) -> None:
    assert hostnames.address_in(name) in (None, "0.0.0.12")


FOUR = {
    f"{AWS}ip-address-type": "dualstack",
    f"{AWS}scheme": "internet-facing",
    f"{AWS}nlb-target-type": "instance",
    f"{AWS}type": "external",
}
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local"}


def admitted(cloud: str, found: Object, old: Object | None = None) -> Object:
    of = table.balancers(cloud)
    assert of
    once = of.admit(found.raw, old.raw if old else None)
    assert of.admit(once, found.raw) == once, "webhooks are idempotent"
    return Object(once)


@cases(
    "annotations spec added",
    ("AWS-X6", {}, {}, FOUR),
    ("AWS-X6-others-stay", {"a": "b", f"{AWS}type": "nlb"}, {}, {"a": "b", **FOUR}),
    ("AWS-X6-internal-scheme", {f"{AWS}scheme": "internal"}, {}, {f"{AWS}scheme": "internal"}),
    ("AWS-X6-internal", {f"{AWS}internal": "true"}, {}, {f"{AWS}internal": "true"}),
    ("AWS-X6-other-type", {}, {"type": "ClusterIP"}, {}),
)
def test_services_of_aws_become_dual_stack(
    annotations: dict[str, Any], spec: dict[str, Any], added: dict[str, Any]
) -> None:
    assert admitted("aws", service(annotations=annotations, **spec)).annotations == added


@cases(
    "spec old wanted",
    ("ALI-X1", {}, None, LOCAL),
    ("ALI-X1-cluster", {"externalTrafficPolicy": "Cluster"}, None, LOCAL),
    (
        "ALI-X1-keeps-its-port",
        {},
        {**LOCAL, "healthCheckNodePort": 31234},
        {**LOCAL, "healthCheckNodePort": 31234},
    ),
    (
        "ALI-X1-has-a-port",
        {"healthCheckNodePort": 31111},
        {**LOCAL, "healthCheckNodePort": 31234},
        {**LOCAL, "healthCheckNodePort": 31111},
    ),
    ("ALI-X1-becomes-local", {}, {"externalTrafficPolicy": "Cluster"}, LOCAL),
    ("ALI-X1-other-type", {"type": "NodePort"}, None, {}),
)
def test_services_of_alicloud_keep_traffic_local(
    spec: dict[str, Any], old: dict[str, Any] | None, wanted: dict[str, Any]
) -> None:
    found = admitted("alicloud", service(**spec), service(**old) if old else None)
    fields = ("externalTrafficPolicy", "healthCheckNodePort")
    assert {field: found.spec[field] for field in fields if field in found.spec} == wanted
    assert found.annotations == ({f"{ALI}spec": "slb.s1.small"} if wanted else {})


def test_only_aws_shows_host_names() -> None:
    assert {cloud for cloud in table.TYPES if asked(cloud).hostname} == {"aws"}
    without = demands.demand_in("shoot", service(), LoadBalancerSettings(), CloudFacts(type="aws"))
    assert without.hostname == "", "a host name needs a region"


def test_the_page_shows_the_tables() -> None:
    text = pages.CLOUDS_PAGE.read_text()
    assert text == pages.clouds_page(text), "run `make generate`"


@pytest.mark.parametrize("type_", table.TYPES)
def test_a_table_names_each_annotation_once(type_: str) -> None:
    of = table.balancers(type_)
    assert of
    names = [one.name for one in of.annotations] + list(of.ignored)
    assert len(names) == len(set(names))
