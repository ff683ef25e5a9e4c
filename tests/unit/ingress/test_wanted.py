"""Which DNSRecords an Ingress ought to have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.dns.ingress import ingressrecords
from workers.dns.ingress.ingressrecords import Target

HOST = "grafana.example.local.gardener.cloud"
A, AAAA, CNAME = Target("A", "10.0.0.1"), Target("AAAA", "fd00::1"), Target("CNAME", "lb.example")


def ingress(*hosts: str | None, at: Any = (), name: str = "web", **metadata: Any) -> Object:
    return Object(
        {
            "metadata": {"name": name, "namespace": "shoot--t--one", "uid": "u1", **metadata},
            "spec": {"rules": [{"host": host} if host is not None else {} for host in hosts]},
            "status": {"loadBalancer": {"ingress": list(at)}},
        }
    )


@rule("C.3", "IG-2")
def test_record_names_end_with_a_host_digest() -> None:
    assert ingressrecords.record_name("web", HOST) == "web-a39b281d"
    assert ingressrecords.record_name("web", HOST, second=True) == "web-a39b281d-ipv6"


@rule("IG-2")
def test_the_longest_name_of_an_ingress_leaves_room_for_the_digest() -> None:
    name = ingressrecords.record_name("a" * 238 + ".b." + "c" * 12, HOST, second=True)
    assert name == "a" * 238 + "-a39b281d-ipv6"
    assert len(ingressrecords.record_name("a" * 253, HOST)) == 253


@cases(
    "record name",
    ("first-family", "web-a39b281d", "web"),
    ("second-family", "web-a39b281d-ipv6", "web"),
    ("dashes", "a-b-a39b281d", "a-b"),
    ("of-gardener", "web-internal", None),
    ("nothing-but-a-digest", "a39b281d", None),
    ("not-our-spelling", "web-A39B281D", None),
)
def test_a_record_name_shows_its_ingress(record: str, name: str | None) -> None:
    assert ingressrecords.ingress_name(record) == name


@cases(
    "entries targets",
    ("IG-1-the-first-address", [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], [A]),
    ("IG-1-the-first-that-is-not-empty", [{"ip": ""}, {}, {"ip": "10.0.0.1"}], [A]),
    ("B.1-both-families", [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}], [A, AAAA]),
    ("B.1-the-family-decides-the-type", [{"ip": "fd00::1"}], [AAAA]),
    ("another-name", [{"hostname": "lb.example"}], [CNAME]),
    ("address-rather-than-name", [{"hostname": "lb.example", "ip": "10.0.0.1"}], [A]),
    ("B.1-no-address-at-all", [{"ip": "nonsense"}], []),
    ("IG-1-none", [], []),
    ("nonsense", ["nonsense", None], []),
    ("of-the-first-hundred", [{"ip": "fd00::1"}] * 99 + [{"ip": "10.0.0.1"}], [A, AAAA]),
    ("not-beyond-the-first-hundred", [{"ip": "fd00::1"}] * 100 + [{"ip": "10.0.0.1"}], [AAAA]),
)
def test_targets_follow_the_status_of_the_ingress(entries: Any, targets: list[Target]) -> None:
    assert ingressrecords.targets(ingress(HOST, at=entries)) == targets


def test_without_a_status_there_are_no_targets() -> None:
    assert ingressrecords.targets(Object({"status": {"loadBalancer": None}})) == []
    assert ingressrecords.targets(Object({})) == []


@rule("IG-3")
def test_hosts_count_once_and_rules_without_one_never() -> None:
    assert ingressrecords.hosts(ingress("b.test", "a.test", "", None, "b.test", "*.c.test")) == [
        "b.test", "a.test", "*.c.test",
    ]  # fmt: skip
    assert ingressrecords.hosts(Object({"spec": {"rules": None}})) == []


@pytest.mark.parametrize(("named", "served"), [(99, 99), (100, 100), (101, 100), (15_000, 100)])
def test_only_the_first_hundred_hosts_have_records(named: int, served: int) -> None:
    many = ingress(*(f"h{number}.test" for number in range(named)), at=[{"ip": "10.0.0.1"}])
    assert [record["spec"]["name"] for record in ingressrecords.records(many)] == [
        f"h{number}.test" for number in range(served)
    ]


def test_the_status_is_read_once_for_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Object] = []

    def targets(of: Object) -> list[Target]:
        asked.append(of)
        return [A]

    monkeypatch.setattr(ingressrecords, "targets", targets)
    assert len(ingressrecords.records(ingress(*(f"h{number}.test" for number in range(100))))) == 100
    assert len(asked) == 1


@rule("IG-2")
def test_each_host_has_a_record_of_each_family() -> None:
    made = ingressrecords.records(ingress(HOST, "*.b.test", at=[{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]))
    assert [(one["metadata"]["name"], one["spec"]["recordType"], one["spec"]["values"]) for one in made] == [
        ("web-a39b281d", "A", ["10.0.0.1"]),
        ("web-a39b281d-ipv6", "AAAA", ["fd00::1"]),
        ("web-7f847af8", "A", ["10.0.0.1"]),
        ("web-7f847af8-ipv6", "AAAA", ["fd00::1"]),
    ]


def test_a_deleting_ingress_has_no_records() -> None:
    leaving = ingress(HOST, at=[{"ip": "10.0.0.1"}], deletionTimestamp="2026-09-01T10:00:00Z")
    assert ingressrecords.records(leaving) == []


def test_a_name_does_not_lead_to_itself() -> None:
    made = ingressrecords.records(ingress("lb.example", "a.test", at=[{"hostname": "LB.example."}]))
    assert [one["spec"]["name"] for one in made] == ["a.test"]


def test_a_corrected_record_requests_a_run() -> None:
    [record] = ingressrecords.records(ingress(HOST, at=[{"ip": "10.0.0.1"}]))
    asked = ingressrecords.with_request(record, datetime(2026, 9, 1, 10, 0, 0, 250000, tzinfo=UTC))
    assert asked["metadata"]["annotations"] == {
        "confirmation.gardener.cloud/deletion": "true",
        "gardener.cloud/operation": "reconcile",
        "gardener.cloud/timestamp": "2026-09-01T10:00:00.250000Z",
    }
    assert record["metadata"]["annotations"] == {"confirmation.gardener.cloud/deletion": "true"}
