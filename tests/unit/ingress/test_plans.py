"""What is done about the records that an Ingress has."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.ingress.test_wanted import HOST, ingress
from windowbox.models.objects import Object
from workers.dns.ingress import ingressrecords
from workers.dns.ingress.ingressrecords import Await, Correct, LeaveAlone, Make, Remove

NAME, SECOND = "web-a39b281d", "web-a39b281d-ipv6"
V4, V6 = {"ip": "10.0.0.1"}, {"ip": "fd00::1"}
DONE = {
    "observedGeneration": 1,
    "lastOperation": {"state": "Succeeded", "lastUpdateTime": "2026-09-01T10:00:00Z"},
}


def there(*at: dict[str, str], host: str = HOST, **changes: Any) -> dict[str, Object]:
    """The records of an Ingress, acted upon, with these changes of their metadata, spec or status."""
    found = {}
    for record in ingressrecords.records(ingress(host, at=at)):
        raw = copy.deepcopy({**record, "status": DONE})
        raw["metadata"]["generation"] = 1
        for part, change in changes.items():
            raw[part] = raw[part] | change
        found[raw["metadata"]["name"]] = Object(raw)
    return found


def steps(now: Object, found: dict[str, Object], kept: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """What is planned, as kind of step and name of record."""
    reported = []
    for action in ingressrecords.plan(now, ingressrecords.records(now), found, kept):
        match action:
            case Make(record) | Correct(record):
                reported.append((type(action).__name__, record["metadata"]["name"]))
            case Remove(record):
                reported.append(("Remove", record.name))
            case Await(name) | LeaveAlone(name):
                reported.append((type(action).__name__, name))
    return reported


LEAVING = {"deletionTimestamp": "2026-09-01T10:00:00Z"}
FAILED = {"lastOperation": {"state": "Error"}}
FORMER = {"controller": True, "kind": "Ingress", "name": "web", "uid": "u0"}
FOREIGN = {"controller": True, "kind": "Ingress", "name": "other", "uid": "u2"}
FRIEND = {"kind": "ConfigMap", "name": "friend", "uid": "u3"}
OURS = there(V4)[NAME].metadata["ownerReferences"][0]


@cases(
    "at found planned",
    ("IG-2-none-yet", [V4], {}, [("Make", NAME)]),
    ("as-it-ought-to-be", [V4], there(V4), []),
    ("a-second-family", [V4, V6], there(V4), [("Make", SECOND)]),
    ("IG-3-one-family-less", [V4], there(V4, V6), [("Remove", SECOND)]),
    ("IG-3-another-address", [{"ip": "10.0.0.2"}], there(V4), [("Correct", NAME)]),
    ("another-family", [V6], there(V4), [("Remove", NAME), ("Await", NAME)]),
    (
        "a-name-instead-of-addresses",
        [{"hostname": "lb.example"}],
        there(V4, V6),
        [("Remove", NAME), ("Remove", SECOND), ("Await", NAME)],
    ),
    (
        "addresses-instead-of-a-name",
        [V4, V6],
        there({"hostname": "lb.example"}),
        [("Remove", NAME), ("Await", NAME), ("Await", NAME)],
    ),
    (
        "the-first-family-comes-second",
        [V4, V6],
        there(V6),
        [("Remove", NAME), ("Await", NAME), ("Make", SECOND)],
    ),
    ("deleted-by-hand", [V4], there(V4, metadata={**there(V4)[NAME].metadata, **LEAVING}), [("Await", NAME)]),
    ("IG-3-another-host", [V4], there(V4, host="old.test"), [("Remove", "web-46c3387a"), ("Make", NAME)]),
    ("labels-taken-off", [V4], there(V4, metadata={"labels": {}}), [("Correct", NAME)]),
    ("owner-taken-off", [V4], there(V4, metadata={"ownerReferences": []}), [("Correct", NAME)]),
    ("A-1-confirmation-taken-off", [V4], there(V4, metadata={"annotations": {}}), [("Correct", NAME)]),
    ("another-owner-beside-us", [V4], there(V4, metadata={"ownerReferences": [FRIEND, OURS]}), []),
    ("of-a-former-ingress", [V4], there(V4, metadata={"ownerReferences": [FORMER]}), [("Correct", NAME)]),
    ("of-another-ingress", [V4], there(V4, metadata={"ownerReferences": [FOREIGN]}), [("LeaveAlone", NAME)]),
    ("of-somebody", [V4], there(V4, metadata={"labels": {}, "ownerReferences": []}), [("LeaveAlone", NAME)]),
    ("T-4-edited-and-edited-back", [V4], there(V4, metadata={"generation": 3}), [("Correct", NAME)]),
    ("T-3-somebody-is-at-it", [V4], there(V4, metadata={"generation": 3}, status=FAILED), []),
    ("what-others-have-added-stays", [V4], there(V4, spec={"ttl": 60}), []),
)
def test_the_steps(
    at: list[dict[str, str]], found: dict[str, Object], planned: list[tuple[str, str]]
) -> None:
    assert steps(ingress(HOST, at=at), found) == planned


@rule("IG-3")
def test_what_an_ingress_leaves_behind_is_removed() -> None:
    assert steps(Object({"metadata": {"name": "web"}}), there(V4, V6)) == [
        ("Remove", NAME),
        ("Remove", SECOND),
    ]
    assert steps(Object({"metadata": {"name": "web"}}), there(V4, metadata=LEAVING)) == []


@rule("IG-1")
def test_hosts_without_an_address_keep_their_records_and_others_do_not() -> None:
    found = there(V4) | there(V4, host="old.test")
    assert steps(ingress(HOST), found, kept=(HOST,)) == [("Remove", "web-46c3387a")]
