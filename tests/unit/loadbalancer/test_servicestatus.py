"""What a Service shows in its status, what its Events say, and what it claims by its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bus.messages import EventIntent
from tests.support.cases import cases
from tests.support.lbobjects import DNS, HTTP, UID, nonsense, service
from tests.support.rules import rule
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import endpoints
from workers.loadbalancer.edge.endpoints import ClusterNodes
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.service import eventmessages, servicestatus
from workers.loadbalancer.service.adoption import claim, confirmed
from workers.loadbalancer.service.servicestatus import Standing
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.demands import demand
from workers.loadbalancer.spec.options import DRAIN, Refusal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SPELLED = "2026-01-02T03:04:05Z"
V4: dict[Family, str] = {"IPv4": "192.0.2.1"}
DUAL: dict[Family, str] = {"IPv6": "fd00::1", "IPv4": "192.0.2.1"}
TWO = service(ports=[HTTP, DNS])
SCTP = {"name": "sig", "port": 9, "protocol": "SCTP"}
SHOWN = [{"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}]


def standing(found: Object | None = None, addresses: dict[Family, str] = V4, **more: Any) -> Standing:
    given: dict[str, Any] = {"problems": {}, "waiting": False, "backends": True} | more
    return Standing(demand(found or service(), direct=False), addresses, **given)


def patched(found: Object, stands: Standing, *, conditions: bool = True) -> Any:
    return servicestatus.patch(found, stands, NOW, conditions=conditions)


def listed(found: Object, stands: Standing, now: datetime = NOW) -> list[dict[str, Any]]:
    return servicestatus.with_conditions(found, stands, now)


def said(found: Object, stands: Standing) -> dict[str, tuple[str, str, str]]:
    """The conditions, without their times."""
    made = listed(found, stands)
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in made}


def short(found: Object, stands: Standing) -> list[str]:
    return [f"{status} {reason}" for status, reason, _ in said(found, stands).values()]


def served(**more: Any) -> Object:
    return service(status={"loadBalancer": {"ingress": SHOWN}}, **more)


def after(found: Object, patch: dict[str, Any]) -> Object:
    return Object({**found.raw, "status": {**found.status, **patch}})


@rule("LB-7-status")
def test_the_status_shows_address_mode_and_ports() -> None:
    assert patched(service(), standing(), conditions=False) == {"loadBalancer": {"ingress": SHOWN}}


def test_a_former_address_is_not_shown_even_if_the_new_one_does_not_serve() -> None:
    taken = {"80/TCP": "the port is taken"}
    moved = standing(addresses={"IPv4": "192.0.2.9"}, problems=taken)
    assert patched(served(), moved, conditions=False) == {"loadBalancer": {"ingress": None}}
    same = standing(problems=taken)
    assert patched(served(), same, conditions=False) == {}


@rule("LB-7-families")
def test_the_status_shows_ipv4_first() -> None:
    found = demand(service(ipFamilies=["IPv6", "IPv4"]), direct=False)
    assert [one["ip"] for one in servicestatus.ingress(found, DUAL, {})] == ["192.0.2.1", "fd00::1"]


@rule("LB-7-status")
def test_the_status_shows_all_ports_also_those_that_are_not_served() -> None:
    found = demand(service(ports=[HTTP, SCTP, DNS]), direct=False)
    (entry,) = servicestatus.ingress(found, V4, {"53/UDP": "PortInUse"})
    assert entry["ports"] == [
        {"port": 80, "protocol": "TCP"},
        {"port": 53, "protocol": "UDP", "error": "loadbalancer.windowbox/PortInUse"},
        {"port": 9, "protocol": "SCTP", "error": "loadbalancer.windowbox/SCTPNotSupported"},
    ]


@cases(
    "stands serves",
    ("all-is-well", standing(), True),
    ("one-port-does", standing(TWO, problems={"53/UDP": "taken"}), True),
    ("none-does", standing(TWO, problems={"53/UDP": "taken", "80/TCP": "taken"}), False),
    ("no-address", standing(addresses={}), False),
    ("all-refused", standing(service(ports=[SCTP])), False),
    ("LB-2-empty", standing(backends=False), True),
)
def test_an_address_is_shown_only_where_something_serves(stands: Standing, serves: bool) -> None:
    assert stands.serves is serves
    assert ("loadBalancer" in patched(service(), stands)) is serves


@rule("LB-7-status")
def test_an_address_that_was_shown_stays_while_something_is_wrong() -> None:
    stands = standing(problems={"80/TCP": "taken"})
    assert "loadBalancer" not in patched(served(), stands)
    assert "loadBalancer" not in servicestatus.waiting(served(), stands, NOW, conditions=True)
    assert servicestatus.waiting(service(), standing(), NOW, conditions=False) == {}


@rule("LB-2-semantic")
@cases(
    "ingress same",
    ("same", SHOWN, True),
    ("wiped", [], False),
    ("address", [SHOWN[0] | {"ip": "192.0.2.2"}], False),
    ("mode", [{"ip": "192.0.2.1", "ports": SHOWN[0]["ports"]}], False),
    ("ports", [{"ip": "192.0.2.1", "ipMode": "Proxy"}], False),
    ("hostname", [SHOWN[0] | {"hostname": "web"}], False),
    ("more", [*SHOWN, SHOWN[0] | {"ip": "192.0.2.2"}], False),
    ("nonsense", "nonsense", False),
)
def test_any_difference_is_seen(ingress: Any, same: bool) -> None:
    found = service(status={"loadBalancer": {"ingress": ingress}})
    patch = patched(found, standing(), conditions=False)
    assert servicestatus.shown(found, patch) is same


@rule("LB-2-semantic")
def test_the_order_of_addresses_is_seen() -> None:
    dual = service(ipFamilies=["IPv4", "IPv6"])
    patch = patched(dual, standing(dual, DUAL), conditions=False)
    assert servicestatus.shown(after(dual, patch), patch)
    turned = {"loadBalancer": {"ingress": patch["loadBalancer"]["ingress"][::-1]}}
    assert not servicestatus.shown(after(dual, turned), patch)


@rule("LB-2-idempotent")
def test_a_written_status_is_not_written_again() -> None:
    patch = patched(service(), standing())
    found = after(service(), patch)
    again = servicestatus.patch(found, standing(), NOW + timedelta(hours=1), conditions=True)
    assert again == patch
    assert servicestatus.shown(found, again)


@cases(
    "status addresses",
    ("none", {}, ()),
    ("one", {"loadBalancer": {"ingress": SHOWN}}, ("192.0.2.1",)),
    ("spelling", {"loadBalancer": {"ingress": [{"ip": "FD00::0:1"}, {"ip": "fd00::1"}]}}, ("fd00::1",)),
    ("nonsense", {"loadBalancer": {"ingress": [{"hostname": "web"}, {"ip": "invalid IP"}, 7]}}, ()),
)
def test_addresses_are_read_from_the_status(status: dict[str, Any], addresses: tuple[str, ...]) -> None:
    assert servicestatus.addresses(service(status=status)) == addresses


@cases(
    "stands conditions",
    ("serving", standing(), ["True Serving", "False Complete"]),
    ("on-its-way", standing(addresses={}, waiting=True), ["False Provisioning", "True Provisioning"]),
    (
        "waiting-for-an-address",
        standing(addresses={}, waiting=True, note="all addresses are in use"),
        ["False Infrastructure", "True Provisioning"],
    ),
    (
        "refused",
        standing(service(ports=[SCTP]), addresses={}, waiting=True),
        ["False Unsupported", "False Complete"],
    ),
    ("LB-3-unavailable-no-nodes", standing(backends=False), ["False Infrastructure", "False Complete"]),
    ("no-port-is-served", standing(problems={"80/TCP": "taken"}), ["False Infrastructure", "False Complete"]),
    (
        "one-port-is-not-served",
        standing(TWO, problems={"53/UDP": "taken"}),
        ["True Serving", "False Complete", "True PortsNotSupported"],
    ),
    (
        "LB-7-sctp-is-degraded",
        standing(service(ports=[HTTP, SCTP])),
        ["True Serving", "False Complete", "True PortsNotSupported"],
    ),
    (
        "one-family-lacks",
        standing(service(ipFamilies=["IPv4", "IPv6"])),
        ["True Serving", "False Complete", "True IPFamiliesNotSupported"],
    ),
    (
        "several-things-lack",
        standing(service(annotations={"loadbalancer.windowbox/idle-timeout": "x"}, ports=[HTTP, SCTP])),
        ["True Serving", "False Complete", "True Multiple"],
    ),
)
def test_conditions_show_the_state(stands: Standing, conditions: list[str]) -> None:
    assert short(service(), stands) == conditions


@rule("LB-7-families")
def test_a_family_without_backends_is_reported() -> None:
    dual = service(ipFamilies=["IPv4", "IPv6"])
    conditions = said(dual, standing(dual, DUAL, unreached={"IPv6": "the only node has none"}))
    assert conditions["LoadBalancerServing"][2] == "Clients are served at 192.0.2.1."
    assert conditions["LoadBalancerDegraded"] == (
        "True",
        "IPFamiliesNotSupported",
        "nothing is behind fd00::1: the only node has none",
    )


def test_conditions_say_why() -> None:
    stands = standing(TWO, problems={"53/UDP": "port 53 is in use"})
    assert said(service(), stands)["LoadBalancerServing"][2] == "Clients are served at 192.0.2.1."
    assert said(service(), stands)["LoadBalancerDegraded"][2] == "53/UDP: port 53 is in use"
    waiting = standing(addresses={}, waiting=True, note="all 31 addresses are in use")
    assert said(service(), waiting)["LoadBalancerServing"][2] == "all 31 addresses are in use"


def test_conditions_depend_on_those_before() -> None:
    before = after(served(), {"conditions": listed(served(), standing())})
    waiting = standing(addresses={}, waiting=True, note="no edge has taken it")
    assert short(before, waiting) == ["True Serving", "True Provisioning"]
    assert short(service(), waiting) == ["False Infrastructure", "True Provisioning"]
    degraded = after(TWO, {"conditions": listed(TWO, standing(TWO, problems={"53/UDP": "taken"}))})
    assert short(degraded, standing(TWO)) == ["True Serving", "False Complete"]


def test_a_condition_of_another_kind_stays_where_it_is() -> None:
    foreign = {"type": "example.com/Foreign", "status": "True", "reason": "Because", "extra": 7}
    found = service(status={"conditions": [foreign]})
    first, *ours = listed(found, standing())
    assert first == foreign
    assert [one["type"] for one in ours] == ["LoadBalancerServing", "LoadBalancerProvisioning"]


def test_the_time_of_a_condition_is_that_of_its_status() -> None:
    later = NOW + timedelta(hours=1)
    before = after(service(), {"conditions": listed(service(), standing())})
    moved = servicestatus.with_conditions(before, standing(addresses={"IPv4": "192.0.2.9"}), later)
    assert [one["lastTransitionTime"] for one in moved] == [SPELLED, SPELLED]
    assert moved[0]["message"] == "Clients are served at 192.0.2.9."
    failed = servicestatus.with_conditions(before, standing(backends=False), later)
    assert [one["lastTransitionTime"] for one in failed] == ["2026-01-02T04:04:05Z", SPELLED]


def test_conditions_name_the_generation_that_they_are_about() -> None:
    found = service(metadata={"generation": 7})
    assert {one["observedGeneration"] for one in listed(found, standing())} == {7}
    assert all("observedGeneration" not in one for one in listed(service(), standing()))


@rule("LB-2-wiped")
def test_cleanup_removes_our_address_and_conditions() -> None:
    foreign = {"type": "example.com/Foreign", "status": "True"}
    shown = [foreign, *listed(served(), standing())]
    assert servicestatus.emptied(after(served(), {"conditions": shown})) == {
        "loadBalancer": {"ingress": None},
        "conditions": [foreign],
    }
    ours = after(served(), {"conditions": shown[1:]})
    assert servicestatus.emptied(ours) == {"loadBalancer": {"ingress": None}, "conditions": None}


@rule("LB-2-wiped")
def test_an_empty_status_needs_no_cleanup() -> None:
    nothing: list[dict[str, Any]] = [{}, {"loadBalancer": {}}, {"conditions": []}]
    for found in (service(status=status) for status in nothing):
        assert servicestatus.shown(found, servicestatus.emptied(found))
    assert not servicestatus.shown(served(), servicestatus.emptied(served()))


@given(nonsense, st.booleans(), st.booleans())
def test_nonsense_raises_no_error(found: Object, backends: bool, waiting: bool) -> None:
    stands = standing(found, DUAL, backends=backends, waiting=waiting)
    patch = patched(found, stands)
    assert servicestatus.shown(after(found, patch), patched(after(found, patch), stands))
    assert isinstance(servicestatus.shown(found, patch), bool)
    assert servicestatus.emptied(found)["loadBalancer"] == {"ingress": None}
    types = [one.get("type") for one in patch["conditions"]]
    assert types.count("LoadBalancerServing") == types.count("LoadBalancerProvisioning") == 1


WEB = ObjectRef(RUNTIME, SERVICES.id, "default", "web")
DRAINED = service(annotations={DRAIN: "true"})


def test_a_drained_service_has_no_listeners_and_so_another_digest() -> None:
    nodes = ClusterNodes([Backend("node-1", {"IPv4": "10.0.0.1"})], checked=True)
    idle = endpoints.load_balancer(WEB, demand(DRAINED, direct=False), V4, nodes)
    busy = endpoints.load_balancer(WEB, demand(service(), direct=False), V4, nodes)
    assert (idle.uid, idle.listeners) == (UID, ())
    assert len(busy.listeners) == 1
    assert idle.digest != busy.digest


def test_a_drained_service_keeps_its_address_and_says_why() -> None:
    patch = patched(service(), standing(DRAINED, backends=False))
    assert [entry["ip"] for entry in patch["loadBalancer"]["ingress"]] == ["192.0.2.1"]
    serving = next(one for one in patch["conditions"] if one["type"] == "LoadBalancerServing")
    assert (serving["status"], serving["reason"]) == ("False", "Drained")
    assert DRAIN in serving["message"]


CLAIMED = {"loadBalancer": {"ingress": [{"ip": "10.0.0.20"}]}}
DIRECT = LoadBalancerSettings(direct=("runtime",))


def test_an_address_is_claimed_with_its_ports() -> None:
    without_node_port = HTTP | {"nodePort": 0}
    word = {"loadbalancer.windowbox/share": "word"}
    found = claim(RUNTIME, service(ports=[without_node_port], annotations=word, status=CLAIMED), DIRECT)
    assert found.ref == WEB
    assert (found.addresses, found.ports, found.share) == ((), ("80/TCP",), "word")
    assert (found.shown, found.families) == (("10.0.0.20",), ("IPv4",))
    # What an edge serves is its own.
    served = confirmed(found, ["10.0.0.20"])
    assert (served.addresses, served.shown) == (("10.0.0.20",), ())


def test_a_claim_stays_small_whatever_is_shown() -> None:
    many = {"loadBalancer": {"ingress": [{"ip": f"10.0.{n}.1"} for n in range(250)]}}
    assert len(claim(RUNTIME, service(status=many), DIRECT).shown) == 8


def test_a_value_for_a_message_is_short_however_deep_it_is() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    assert fields.shown(deep) == '"[[[[[[[...]]]]]]]"'


NO_NODES = "There are no available nodes for LoadBalancer"
REFUSED = Refusal("SCTPNotSupported", "port 9/SCTP is not served", (9, "SCTP"))
ENSURE, DELETE = eventmessages.sync_failed("ensure", "why"), eventmessages.sync_failed("delete", "why")
FAILED = "Error syncing load balancer: failed to {} load balancer: why"


@cases(
    "event kind reason note",
    ("LB-3-ensuring", eventmessages.ensuring(), "Normal", "EnsuringLoadBalancer", "Ensuring load balancer"),
    ("LB-3-ensured", eventmessages.ensured(), "Normal", "EnsuredLoadBalancer", "Ensured load balancer"),
    (
        "LB-3-updated",
        *(eventmessages.updated(), "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts"),
    ),
    ("LB-3-unavailable", eventmessages.unavailable(), "Warning", "UnAvailableLoadBalancer", NO_NODES),
    (
        "LB-3-unavailable-and-why",
        *(eventmessages.unavailable("it has none"), "Warning", "UnAvailableLoadBalancer"),
        f"{NO_NODES}: it has none",
    ),
    ("LB-3-deleting", eventmessages.deleting(), "Normal", "DeletingLoadBalancer", "Deleting load balancer"),
    ("LB-3-deleted", eventmessages.deleted(), "Normal", "DeletedLoadBalancer", "Deleted load balancer"),
    ("LB-3-syncfailed-ensure", ENSURE, "Warning", "SyncLoadBalancerFailed", FAILED.format("ensure")),
    ("LB-3-syncfailed-delete", DELETE, "Warning", "SyncLoadBalancerFailed", FAILED.format("delete")),
    ("LB-7-sctp", eventmessages.refused([REFUSED])[0], "Warning", REFUSED.reason, REFUSED.note),
    (
        "LB-3-updatefailed-few",
        *(eventmessages.update_failed(["b", "a"], "away"), "Warning", "UpdateLoadBalancerFailed"),
        "Error updating load balancer with new hosts [a b] [node names limited, total number of nodes: 2], "
        "error: away",
    ),
)
def test_an_event_says(event: EventIntent, kind: str, reason: str, note: str) -> None:
    assert (event.type, event.reason, event.note) == (kind, reason, note)


@rule("LB-3-updatefailed")
def test_of_many_nodes_twenty_are_named() -> None:
    note = eventmessages.update_failed([f"n{number:02}" for number in range(23)], "away").note
    assert " n19 <3 more>] [node names limited, total number of nodes: 23]" in note
    assert "n20" not in note


def test_many_refusals_share_one_event_per_reason() -> None:
    many = [Refusal("SCTPNotSupported", f"port {n}/SCTP is not served", (n, "SCTP")) for n in range(1, 251)]
    few = [Refusal("InvalidPort", f"spec.ports[{n}].port is 0") for n in range(3)]
    reported = eventmessages.refused([*many, *few])
    assert [event.reason for event in reported] == ["SCTPNotSupported", *["InvalidPort"] * 3]
    assert reported[0].note == (
        "port 1/SCTP is not served. So it is with 249 more (2/SCTP, 3/SCTP, 4/SCTP and 246 more)"
    )


def test_a_note_is_never_longer_than_the_api_takes() -> None:
    note = eventmessages.sync_failed("ensure", "x" * 5000).note
    assert (len(note), note[-1]) == (1024, "…")


def test_only_the_first_hundred_entries_of_a_status_are_looked_at() -> None:
    entries = [{"ip": f"10.0.{number >> 8}.{number & 255}"} for number in range(50_000)]
    shown = servicestatus.addresses(Object({"status": {"loadBalancer": {"ingress": entries}}}))
    assert shown == tuple(entry["ip"] for entry in entries[:100])
