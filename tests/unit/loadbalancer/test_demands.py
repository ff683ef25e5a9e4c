"""What a Service asks for: ports, families, source ranges, addresses and options, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.lbobjects import DNS, HTTP, UID, brief, nonsense, service
from tests.support.rules import rule
from windowbox.models.loadbalancers import Family, canonical, family
from windowbox.models.objects import Object
from workers.loadbalancer.spec.demands import Demand, Port, demand
from workers.loadbalancer.spec.options import DRAIN, Refusal

RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
ADDRESS = "loadbalancer.windowbox/address"
SHARE = "loadbalancer.windowbox/share"
PROXY = "loadbalancer.windowbox/proxy-protocol"
IDLE = "loadbalancer.windowbox/idle-timeout"
LIMIT = "loadbalancer.windowbox/connection-limit"
LONG = "x" * 10_000
BOTH = ["IPv4", "IPv6"]


def asked(**spec: Any) -> Demand:
    return demand(service(**spec), direct=False)


def annotated(key: str, value: Any, **spec: Any) -> Demand:
    return asked(annotations={key: value}, **spec)


def only(found: Demand) -> Refusal:
    [refusal] = found.refusals
    assert len(refusal.note) < 300
    return refusal


@rule("LB-7-ports")
def test_a_plain_service_asks_for_little() -> None:
    assert asked() == Demand(
        uid=UID,
        families=("IPv4",),
        ports=(Port("http", 80, "TCP", 30080, 8080),),
        local=False,
        health_port=10256,
        affinity=False,
        allowed=None,
        proxy_protocol=None,
        idle_timeout=None,
        max_connections=None,
        requested=(),
        share=None,
        refusals=(),
    )


@rule("LB-16-key")
@rule("LB-7-ports")
def test_one_number_may_be_served_over_both_protocols() -> None:
    found = asked(ports=[DNS | {"protocol": "TCP", "name": "dns-tcp"}, DNS])
    assert found.places == ("53/TCP", "53/UDP")
    assert found.refusals == ()


@cases(
    "spec families",
    ("LB-7-families-ipv4-first", {"ipFamilies": ["IPv6", "IPv4"]}, ("IPv4", "IPv6")),
    ("LB-7-families-ipv6", {"ipFamilies": ["IPv6"]}, ("IPv6",)),
    ("LB-7-families-absent", {"ipFamilies": None}, ("IPv4",)),
    (
        "LB-7-families-by-cluster-ips",
        {"ipFamilies": None, "clusterIPs": ["fd00::1", "10.0.0.1"]},
        ("IPv4", "IPv6"),
    ),
    ("LB-7-families-by-cluster-ip", {"ipFamilies": [], "clusterIP": "fd00::1"}, ("IPv6",)),
    ("LB-7-families-nonsense", {"ipFamilies": ["IPX"], "clusterIP": "None"}, ("IPv4",)),
)
def test_an_address_of_each_family_is_asked_for(spec: dict[str, Any], families: tuple[str, ...]) -> None:
    assert asked(**spec).families == families


def local(port: Any) -> dict[str, Any]:
    return {"externalTrafficPolicy": "Local", "healthCheckNodePort": port}


@cases(
    "spec port",
    ("LB-16-health+LB-7-cluster", {"externalTrafficPolicy": "Cluster"}, 10256),
    ("LB-16-health+LB-7-local+LB-7-healthport", local(31234), 31234),
    ("LB-7-healthport-of-local-only", local(31234) | {"externalTrafficPolicy": "Cluster"}, 10256),
    ("LB-7-healthport-missing", {"externalTrafficPolicy": "Local"}, 10256),
    ("LB-7-healthport-wrong", local(True), 10256),
)
def test_the_health_port_follows_the_traffic_policy(spec: dict[str, Any], port: int) -> None:
    found = asked(**spec)
    assert found.health_port == port
    assert found.local is (spec["externalTrafficPolicy"] == "Local")


@rule("LB-7-affinity")
def test_affinity_is_asked_for_by_client_ip() -> None:
    assert asked(sessionAffinity="ClientIP").affinity
    assert not asked(sessionAffinity="None").affinity


@cases(
    "spec refusal",
    (
        "LB-7-sctp",
        HTTP | {"protocol": "SCTP", "port": 9, "name": "sig"},
        Refusal(
            "SCTPNotSupported",
            'port 9/SCTP ("sig") is not served: load balancers here carry TCP and UDP, not SCTP; the '
            "Service's other ports are not affected. Use TCP, or reach the Pods by a node port",
            (9, "SCTP"),
        ),
    ),
    (
        "LB-7-portless+LB-11-12",
        {"port": 9, "protocol": "TCP"},
        Refusal(
            "NodePortMissing",
            "port 9/TCP is not served: spec.ports[0].nodePort is not set, and Pods of this cluster "
            "cannot be reached directly. Set spec.allocateLoadBalancerNodePorts to true, or give a "
            "nodePort",
            (9, "TCP"),
        ),
    ),
    (
        "LB-7-ports-protocol",
        HTTP | {"protocol": "DCCP"},
        Refusal("UnsupportedProtocol", 'spec.ports[0].protocol is "DCCP": only TCP and UDP are served', None),
    ),
    (
        "LB-7-ports-number",
        HTTP | {"port": 0},
        Refusal("InvalidPort", 'spec.ports[0].port is "0": give a number of 1 to 65535', None),
    ),
)
def test_a_port_that_cannot_be_served_leaves_the_others_alone(spec: dict[str, Any], refusal: Refusal) -> None:
    alone, beside = asked(ports=[spec]), asked(ports=[spec, DNS])
    assert (alone.ports, alone.refusals) == ((), (refusal,))
    assert (beside.places, beside.refusals) == (("53/UDP",), (refusal,))


@rule("LB-7-ports")
def test_a_port_named_twice_is_served_once() -> None:
    found = asked(ports=[HTTP, HTTP | {"nodePort": 30081}])
    assert [port.node_port for port in found.ports] == [30080]
    assert only(found).reason == "DuplicatePort"


@rule("LB-7-portless")
def test_reachable_pods_need_no_node_port() -> None:
    found = demand(service(ports=[{"port": 80, "targetPort": "web"}]), direct=True)
    assert (found.ports, found.refusals) == ((Port("", 80, "TCP", None, "web"),), ())
    assert demand(service(), direct=True).ports[0].node_port == 30080


@pytest.mark.parametrize("ports", [None, [], {}, "80"])
def test_without_ports_there_is_nothing_to_serve(ports: Any) -> None:
    found = asked(ports=ports)
    assert (found.ports, only(found).reason) == ((), "NoPorts")


@given(nonsense, st.booleans())
def test_any_service_gets_an_answer(found: Object, direct: bool) -> None:
    answer = demand(found, direct=direct)
    assert answer.families
    assert len(set(answer.places)) == len(answer.ports)
    assert answer.ports or answer.refusals
    assert all(canonical(address) == address for address in answer.requested)
    assert {family(address) for address in answer.requested} <= set(answer.families)
    assert all(len(refusal.note) < 1000 for refusal in answer.refusals)


@cases(
    "policy offered families",
    ("LB-7-families-content-with-one", "PreferDualStack", ("IPv4",), ("IPv4",)),
    ("LB-7-families-content-with-the-other", "PreferDualStack", ("IPv6",), ("IPv6",)),
    ("LB-7-families-nothing-to-be-had", "PreferDualStack", (), ("IPv4", "IPv6")),
    ("LB-7-families-insists", "RequireDualStack", ("IPv4",), ("IPv4", "IPv6")),
)
def test_prefer_dual_stack_takes_the_offered_families(
    policy: str, offered: tuple[Family, ...], families: tuple[Family, ...]
) -> None:
    both = service(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy=policy)
    assert demand(both, direct=False, offered=offered).families == families


@cases(
    "ports ranges served reasons",
    ("most-ports", 250, 0, 250, []),
    ("one-port-too-many", 251, 0, 250, ["TooManyPorts"]),
    ("most-ranges", 1, 1000, 1, []),
    ("one-range-too-many", 1, 1001, 0, ["TooManySourceRanges"]),
    ("far-too-many-ranges", 1, 60_000, 0, ["TooManySourceRanges"]),
    ("most-rules", 100, 100, 100, []),
    ("too-many-rules", 101, 100, 0, ["TooManyRules"]),
)
def test_demands_of_one_service_are_bounded(ports: int, ranges: int, served: int, reasons: list[str]) -> None:
    asked_for = [HTTP | {"name": f"p{n}", "port": n, "nodePort": 30000 + n} for n in range(1, ports + 1)]
    allowed = [f"10.{n // 256}.{n % 256}.0/25" for n in range(ranges)]
    found = asked(ports=asked_for, loadBalancerSourceRanges=allowed or None)
    assert len(found.ports) == served
    assert [refusal.reason for refusal in found.refusals] == reasons


def test_a_long_annotation_of_ranges_is_refused_unread() -> None:
    found = annotated(RANGES, "10.0.0.0/8," * 6000)
    assert found.ports == ()
    assert only(found).reason == "TooManySourceRanges"


@cases(
    "field annotation allowed",
    ("LB-7-ranges-none", None, None, None),
    ("LB-7-ranges-empty", [], None, None),
    ("LB-7-ranges-blanks-and-spelling", *([" 10.0.0.0/8 ", "FD00::/8"], None, ("10.0.0.0/8", "fd00::/8"))),
    ("LB-7-ranges-host-bits", ["10.1.2.3/8", "10.0.0.0/8"], None, ("10.0.0.0/8",)),
    ("LB-7-ranges-default-is-everybody", ["0.0.0.0/0"], None, None),
    ("LB-7-ranges-all-of-both", ["0.0.0.0/0", "::/0"], None, ("0.0.0.0/0", "::/0")),
    ("LB-7-ranges-annotation-blank", None, " ", None),
    ("LB-7-ranges-annotation+LB-11-6", None, "10.0.0.0/8, fd00::/8", ("10.0.0.0/8", "fd00::/8")),
    ("LB-7-ranges-field-first", ["192.0.2.0/24"], "10.0.0.0/8", ("192.0.2.0/24",)),
    ("LB-7-ranges-empty-field", [], "10.0.0.0/8", ("10.0.0.0/8",)),
    ("LB-7-ranges-one-address", None, "192.0.2.7", ("192.0.2.7/32",)),
)
def test_source_ranges_are_understood(field: Any, annotation: Any, allowed: tuple[str, ...] | None) -> None:
    found = annotated(RANGES, annotation, loadBalancerSourceRanges=field)
    assert (found.allowed, found.refusals) == (allowed, ())


@pytest.mark.parametrize(
    "bad",
    [
        *("10.0.0.0/33", "10.0.0.0/", "10.0.0.0/255.0.0.0", "10.0.0.0/0.0.0.255", "010.0.0.0/8", "", "all"),
        *("fe80::1%eth0/64", "10.0.0.0/8/8", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8\n,", LONG),
        *("10.0.0.0/08", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1"),
        *(7, None, {}),
    ],
    ids=brief,
)
@rule("LB-7-ranges")
def test_ranges_that_cannot_be_read_close_the_service(bad: Any) -> None:
    found = asked(loadBalancerSourceRanges=["10.0.0.0/8", bad])
    assert (found.ports, only(found).reason) == ((), "InvalidSourceRanges")


@pytest.mark.parametrize("bad", [",", "10.0.0.0/8,", "10.0.0.0/8;fd00::/8", LONG, 7, {}], ids=brief)
@rule("LB-7-ranges")
def test_an_annotation_that_cannot_be_read_closes_the_service(bad: Any) -> None:
    found = annotated(RANGES, bad)
    assert (found.ports, only(found).reason) == ((), "InvalidSourceRanges")


@rule("LB-7-ranges")
def test_the_refusal_of_ranges_says_what_to_do() -> None:
    assert asked(loadBalancerSourceRanges="10.0.0.0/8").ports == ()
    found = asked(loadBalancerSourceRanges=["a", "b/8", "10.0.0.0/8", "c", "d"])
    assert only(found).note == (
        "nothing is served, so that no client outside the ranges gets in: spec.loadBalancerSourceRanges "
        'holds "a", "b/8", "c" and 1 more; give prefixes like 10.0.0.0/8 or fd00::/8'
    )


@cases(
    "field annotation requested",
    ("LB-7-address", "10.0.0.7", None, ("10.0.0.7",)),
    ("LB-7-address-empty", "", None, ()),
    ("annotation", None, "10.0.0.7", ("10.0.0.7",)),
    ("annotation-empty", None, "", ()),
    ("both-families", None, " FD00::0:7, 10.0.0.7", ("10.0.0.7", "fd00::7")),
    ("LB-7-address-and-annotation", "10.0.0.7", "fd00::7", ("10.0.0.7", "fd00::7")),
    ("LB-7-address-named-twice", "10.0.0.7", "10.0.0.7,10.0.0.7", ("10.0.0.7",)),
)
def test_a_fixed_address_is_understood(field: Any, annotation: Any, requested: tuple[str, ...]) -> None:
    families = BOTH if len(requested) == 2 else ["IPv4"]
    found = annotated(ADDRESS, annotation, loadBalancerIP=field, ipFamilies=families)
    assert (found.requested, found.refusals) == (requested, ())


ONE_OF_EACH = "give an address, or one of each family with a comma between them"


@cases(
    "field annotation note",
    (
        "LB-7-address-none",
        *(None, "10.0.0.300", f'annotation {ADDRESS} asks for "10.0.0.300": {ONE_OF_EACH}'),
    ),
    (
        "LB-7-address-other-family",
        *("fd00::7", None),
        'spec.loadBalancerIP asks for "fd00::7": the Service has no IPv6; see spec.ipFamilies',
    ),
    (
        "LB-7-address-contradiction",
        *("10.0.0.8", "10.0.0.7"),
        'spec.loadBalancerIP asks for "10.0.0.8": 10.0.0.7 is asked for, too; give one address of IPv4',
    ),
    ("LB-7-address-comma", None, "10.0.0.7,", f'annotation {ADDRESS} asks for "": {ONE_OF_EACH}'),
)
def test_an_impossible_address_is_refused(field: Any, annotation: Any, note: str) -> None:
    found = annotated(ADDRESS, annotation, loadBalancerIP=field)
    assert (found.ports, only(found)) == ((), Refusal("InvalidAddress", note))


@pytest.mark.parametrize(
    "bad",
    [7, True, {}, ["10.0.0.1"], LONG, "0.0.0.0", "224.0.0.1", "10.0.0.1/32", "::ffff:10.0.0.1"],
    ids=brief,
)
@cases("annotation", ("annotation", True), ("field", False))
def test_malformed_addresses_are_refused(bad: Any, annotation: bool) -> None:
    found = annotated(ADDRESS, bad) if annotation else asked(loadBalancerIP=bad)
    assert (found.requested, found.ports, only(found).reason) == ((), (), "InvalidAddress")


@pytest.mark.parametrize(
    ("key", "field", "value", "found"),
    [
        *((PROXY, "proxy_protocol", *pair) for pair in (("v1", 1), ("v2", 2), (None, None))),
        # Durations are written as in Go.
        *(
            (IDLE, "idle_timeout", *pair)
            for pair in (("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("1s", 1))
        ),
        *((IDLE, "idle_timeout", *pair) for pair in (("1500ms", 1.5), ("2000000µs", 2), (" 5m ", 300))),
        *((LIMIT, "max_connections", *pair) for pair in (("1", 1), (" 1000 ", 1000), ("9" * 9, 999999999))),
        *(
            (SHARE, "share", *pair)
            for pair in (("web", "web"), (" a.b/c ", "a.b/c"), ("", None), (None, None))
        ),
        *((DRAIN, "drained", *pair) for pair in (("true", True), ("false", False), ("", False))),
    ],
)
def test_an_option_is_understood(key: str, field: str, value: str | None, found: Any) -> None:
    answer = annotated(key, value)
    assert getattr(answer, field) == (pytest.approx(found) if key == IDLE else found)
    assert answer.refusals == ()


UNREADABLE: dict[str, tuple[str, tuple[Any, ...]]] = {
    PROXY: ("InvalidProxyProtocol", ("", "V1", "v3", "1", 1, True, LONG)),
    SHARE: ("InvalidShare", ("two words", " ", LONG, 7)),
    IDLE: (
        "InvalidIdleTimeout",
        (
            *("", "90", "s", "-5s", "+5s", "0", "0s", "1ms", "9000h", "1e3s", "1.2.3s", "5 s", "٥s", "1d"),
            *(LONG, 90, {}),
        ),
    ),
    LIMIT: ("InvalidConnectionLimit", ("", "0", "-1", "1e3", "٣", "1_000", "9" * 10_000, 5, True)),
    DRAIN: ("InvalidDrain", ("maybe",)),
}


@pytest.mark.parametrize(
    ("key", "reason", "bad"),
    [(key, reason, bad) for key, (reason, values) in UNREADABLE.items() for bad in values],
    ids=brief,
)
def test_an_unreadable_option_is_refused(key: str, reason: str, bad: Any) -> None:
    found = annotated(key, bad)
    # Without the header or the sharing that was requested nothing is served.
    assert found.places == (() if key in (PROXY, SHARE) else ("80/TCP",))
    assert only(found).reason == reason
    assert (found.proxy_protocol, found.idle_timeout, found.max_connections) == (None, None, None)
    assert (found.share, found.drained) == (None, False)


def test_a_refusal_names_field_value_and_remedy() -> None:
    assert only(annotated(LIMIT, LONG)).note == (
        f'annotation {LIMIT} is "{"x" * 64}…": give a number of 1 to 999999999; until then there is no limit'
    )
    assert "give true or false" in only(annotated(DRAIN, "maybe")).note


def test_several_refusals_are_reported_together() -> None:
    found = asked(annotations={IDLE: "x", LIMIT: "x"}, ports=[HTTP, {"port": 9, "protocol": "SCTP"}])
    reasons = ["InvalidIdleTimeout", "InvalidConnectionLimit", "SCTPNotSupported"]
    assert [one.reason for one in found.refusals] == reasons


_SPECIAL = st.sampled_from([RANGES, ADDRESS, SHARE, PROXY, IDLE, LIMIT])


@given(st.dictionaries(_SPECIAL, st.text() | st.text("0123456789.,:/ hmsv", max_size=20)))
def test_any_annotation_gets_an_answer(annotations: dict[str, str]) -> None:
    answer = asked(annotations=annotations, ipFamilies=BOTH)
    assert bool(answer.ports) or bool(answer.refusals)
    assert answer.idle_timeout is None or answer.idle_timeout >= 1
