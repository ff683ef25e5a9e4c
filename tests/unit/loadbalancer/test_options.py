"""Who may come, from which address, and how: what a Service asks for beside its ports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.lbobjects import HTTP, brief, service
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.spec.demands import Demand, demand
from workers.loadbalancer.spec.options import Refusal

RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
ADDRESS = "loadbalancer.windowbox/address"
SHARE = "loadbalancer.windowbox/share"
PROXY = "loadbalancer.windowbox/proxy-protocol"
IDLE = "loadbalancer.windowbox/idle-timeout"
LIMIT = "loadbalancer.windowbox/connection-limit"
LONG = "x" * 10_000

BOTH = ["IPv4", "IPv6"]


def asked(found: Object) -> Demand:
    return demand(found, direct=False)


def annotated(key: str, value: Any, **spec: Any) -> Demand:
    return asked(service(annotations={key: value}, **spec))


def only(found: Demand) -> Refusal:
    assert len(found.refusals) == 1
    return found.refusals[0]


@cases(
    "found allowed",
    ("LB-7-ranges-none", service(), None),
    ("LB-7-ranges-empty", service(loadBalancerSourceRanges=[]), None),
    (
        "LB-7-ranges-blanks-and-spelling",
        service(loadBalancerSourceRanges=[" 10.0.0.0/8 ", "FD00::/8"]),
        ("10.0.0.0/8", "fd00::/8"),
    ),
    (
        "LB-7-ranges-host-bits",
        service(loadBalancerSourceRanges=["10.1.2.3/8", "10.0.0.0/8"]),
        ("10.0.0.0/8",),
    ),
    ("LB-7-ranges-default-is-everybody", service(loadBalancerSourceRanges=["0.0.0.0/0"]), None),
    (
        "LB-7-ranges-all-of-both",
        service(loadBalancerSourceRanges=["0.0.0.0/0", "::/0"]),
        ("0.0.0.0/0", "::/0"),
    ),
    ("LB-7-ranges-annotation-blank", service(annotations={RANGES: " "}), None),
    (
        "LB-7-ranges-annotation+LB-11-6",
        service(annotations={RANGES: "10.0.0.0/8, fd00::/8"}),
        ("10.0.0.0/8", "fd00::/8"),
    ),
    (
        "LB-7-ranges-field-first",
        service(annotations={RANGES: "10.0.0.0/8"}, loadBalancerSourceRanges=["192.0.2.0/24"]),
        ("192.0.2.0/24",),
    ),
    (
        "LB-7-ranges-empty-field",
        service(annotations={RANGES: "10.0.0.0/8"}, loadBalancerSourceRanges=[]),
        ("10.0.0.0/8",),
    ),
    ("LB-7-ranges-one-address", service(annotations={RANGES: "192.0.2.7"}), ("192.0.2.7/32",)),
)
def test_source_ranges_are_understood(found: Object, allowed: tuple[str, ...] | None) -> None:
    assert asked(found).allowed == allowed
    assert asked(found).refusals == ()


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
    found = asked(service(loadBalancerSourceRanges=["10.0.0.0/8", bad]))
    assert found.ports == ()
    assert only(found).reason == "InvalidSourceRanges"
    assert len(only(found).note) < 300


@pytest.mark.parametrize("bad", [",", "10.0.0.0/8,", "10.0.0.0/8;fd00::/8", LONG, 7, {}], ids=brief)
@rule("LB-7-ranges")
def test_an_annotation_that_cannot_be_read_closes_the_service(bad: Any) -> None:
    found = annotated(RANGES, bad)
    assert found.ports == ()
    assert only(found).reason == "InvalidSourceRanges"


@rule("LB-7-ranges")
def test_the_refusal_of_ranges_says_what_to_do() -> None:
    found = asked(service(loadBalancerSourceRanges=["a", "b/8", "10.0.0.0/8", "c", "d"]))
    assert only(found).note == (
        "nothing is served, so that nobody gets in who should not: spec.loadBalancerSourceRanges holds "
        '"a", "b/8", "c" and 1 more; give prefixes like 10.0.0.0/8 or fd00::/8'
    )


def test_ranges_of_a_wrong_type_close_the_service() -> None:
    assert asked(service(loadBalancerSourceRanges="10.0.0.0/8")).ports == ()


@cases(
    "found requested",
    ("LB-7-address", service(loadBalancerIP="10.0.0.7"), ("10.0.0.7",)),
    ("LB-7-address-empty", service(loadBalancerIP=""), ()),
    ("annotation", service(annotations={ADDRESS: "10.0.0.7"}), ("10.0.0.7",)),
    ("annotation-empty", service(annotations={ADDRESS: ""}), ()),
    (
        "both-families",
        service(annotations={ADDRESS: " FD00::0:7, 10.0.0.7"}, ipFamilies=BOTH),
        ("10.0.0.7", "fd00::7"),
    ),
    (
        "LB-7-address-and-annotation",
        service(annotations={ADDRESS: "fd00::7"}, loadBalancerIP="10.0.0.7", ipFamilies=BOTH),
        ("10.0.0.7", "fd00::7"),
    ),
    (
        "LB-7-address-named-twice",
        service(annotations={ADDRESS: "10.0.0.7,10.0.0.7"}, loadBalancerIP="10.0.0.7"),
        ("10.0.0.7",),
    ),
)
def test_a_fixed_address_is_understood(found: Object, requested: tuple[str, ...]) -> None:
    assert asked(found).requested == requested
    assert asked(found).refusals == ()


@cases(
    "found note",
    (
        "LB-7-address-none",
        service(annotations={ADDRESS: "10.0.0.300"}),
        f'annotation {ADDRESS} asks for "10.0.0.300": give an address, or one of each family with a '
        "comma between them",
    ),
    (
        "LB-7-address-other-family",
        service(loadBalancerIP="fd00::7"),
        'spec.loadBalancerIP asks for "fd00::7": the Service has no IPv6; see spec.ipFamilies',
    ),
    (
        "LB-7-address-contradiction",
        service(annotations={ADDRESS: "10.0.0.7"}, loadBalancerIP="10.0.0.8"),
        'spec.loadBalancerIP asks for "10.0.0.8": 10.0.0.7 is asked for, too; give one address of IPv4',
    ),
    (
        "LB-7-address-comma",
        service(annotations={ADDRESS: "10.0.0.7,"}),
        f'annotation {ADDRESS} asks for "": give an address, or one of each family with a comma between them',
    ),
)
def test_an_address_that_cannot_be_had_ends_in_a_refusal(found: Object, note: str) -> None:
    assert asked(found).ports == ()
    assert only(asked(found)) == Refusal("InvalidAddress", note)


@pytest.mark.parametrize(
    "bad",
    [7, True, {}, ["10.0.0.1"], LONG, "0.0.0.0", "224.0.0.1", "10.0.0.1/32", "::ffff:10.0.0.1"],
    ids=brief,
)
@pytest.mark.parametrize("annotation", [True, False], ids=["annotation", "field"])
def test_what_is_no_address_is_refused(bad: Any, annotation: bool) -> None:
    found = annotated(ADDRESS, bad) if annotation else asked(service(loadBalancerIP=bad))
    assert (found.requested, found.ports, only(found).reason) == ((), (), "InvalidAddress")
    assert len(only(found).note) < 300


@pytest.mark.parametrize(
    ("value", "version"), [("v1", 1), ("v2", 2), (None, None)], ids=["v1", "v2", "absent"]
)
def test_the_proxy_protocol_has_two_versions(value: str | None, version: int | None) -> None:
    assert annotated(PROXY, value).proxy_protocol == version


@pytest.mark.parametrize("bad", ["", "V1", "v3", "1", 1, True, LONG], ids=brief)
def test_without_the_header_that_was_asked_for_nothing_is_served(bad: Any) -> None:
    found = annotated(PROXY, bad)
    assert (found.ports, only(found).reason) == ((), "InvalidProxyProtocol")
    assert len(only(found).note) < 300


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1s", 1),
        ("1500ms", 1.5),
        ("2000000µs", 2),
        (" 5m ", 300),
    ],
)
def test_an_idle_timeout_is_written_as_in_go(value: str, seconds: float) -> None:
    assert annotated(IDLE, value).idle_timeout == pytest.approx(seconds)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "90",
        "s",
        "-5s",
        "+5s",
        "0",
        "0s",
        "1ms",
        "9000h",
        "1e3s",
        "1.2.3s",
        "5 s",
        "٥s",
        "1d",
        LONG,
        90,
        None,
    ],
    ids=brief,
)
def test_an_idle_timeout_that_cannot_be_read_is_as_usual(bad: Any) -> None:
    found = annotated(IDLE, {} if bad is None else bad)
    assert (found.idle_timeout, found.places) == (None, ("80/TCP",))
    assert only(found).reason == "InvalidIdleTimeout"
    assert len(only(found).note) < 300


@pytest.mark.parametrize(("value", "limit"), [("1", 1), (" 1000 ", 1000), ("999999999", 999999999)])
def test_connections_can_be_limited(value: str, limit: int) -> None:
    assert annotated(LIMIT, value).max_connections == limit


@pytest.mark.parametrize("bad", ["", "0", "-1", "1e3", "٣", "1_000", "9" * 10_000, 5, True], ids=brief)
def test_a_limit_that_cannot_be_read_is_none(bad: Any) -> None:
    found = annotated(LIMIT, bad)
    assert (found.max_connections, found.places) == (None, ("80/TCP",))
    assert only(found).reason == "InvalidConnectionLimit"
    assert len(only(found).note) < 300


def test_a_refusal_names_field_value_and_remedy() -> None:
    assert only(annotated(LIMIT, LONG)).note == (
        f'annotation {LIMIT} is "{"x" * 64}…": give a number of 1 to 999999999; until then there is no limit'
    )


def test_several_refusals_are_told_together() -> None:
    found = asked(service(annotations={IDLE: "x", LIMIT: "x"}, ports=[HTTP, {"port": 9, "protocol": "SCTP"}]))
    assert [one.reason for one in found.refusals] == [
        "InvalidIdleTimeout",
        "InvalidConnectionLimit",
        "SCTPNotSupported",
    ]


@pytest.mark.parametrize(("value", "word"), [("web", "web"), (" a.b/c ", "a.b/c"), ("", None), (None, None)])
def test_an_address_is_shared_by_a_word(value: str | None, word: str | None) -> None:
    assert annotated(SHARE, value).share == word


@pytest.mark.parametrize("bad", ["two words", " ", LONG, 7], ids=brief)
def test_what_is_no_word_shares_nothing(bad: Any) -> None:
    found = annotated(SHARE, bad)
    assert (found.share, found.ports, only(found).reason) == (None, (), "InvalidShare")


_SPECIAL = st.sampled_from([RANGES, ADDRESS, SHARE, PROXY, IDLE, LIMIT])


@given(st.dictionaries(_SPECIAL, st.text() | st.text("0123456789.,:/ hmsv", max_size=20)))
def test_any_annotation_gets_an_answer(annotations: dict[str, str]) -> None:
    answer = asked(service(annotations=annotations, ipFamilies=BOTH))
    assert bool(answer.ports) or bool(answer.refusals)
    assert answer.idle_timeout is None or answer.idle_timeout >= 1
