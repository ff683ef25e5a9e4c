"""What is done about the records that an Ingress has."""

from __future__ import annotations

import copy
from typing import Any

import pytest

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
    told = []
    for action in ingressrecords.plan(now, ingressrecords.records(now), found, kept):
        match action:
            case Make(record) | Correct(record):
                told.append((type(action).__name__, record["metadata"]["name"]))
            case Remove(record):
                told.append(("Remove", record.name))
            case Await(name) | LeaveAlone(name):
                told.append((type(action).__name__, name))
    return told


LEAVING = {"deletionTimestamp": "2026-09-01T10:00:00Z"}
FAILED = {"lastOperation": {"state": "Error"}}
FORMER = {"controller": True, "kind": "Ingress", "name": "web", "uid": "u0"}
FOREIGN = {"controller": True, "kind": "Ingress", "name": "other", "uid": "u2"}
FRIEND = {"kind": "ConfigMap", "name": "friend", "uid": "u3"}
OURS = there(V4)[NAME].metadata["ownerReferences"][0]


@pytest.mark.parametrize(
    ("at", "found", "planned"),
    [
        pytest.param([V4], {}, [("Make", NAME)], id="IG-2-none-yet"),
        pytest.param([V4], there(V4), [], id="as-it-ought-to-be"),
        pytest.param([V4, V6], there(V4), [("Make", SECOND)], id="a-second-family"),
        pytest.param([V4], there(V4, V6), [("Remove", SECOND)], id="IG-3-one-family-less"),
        pytest.param([{"ip": "10.0.0.2"}], there(V4), [("Correct", NAME)], id="IG-3-another-address"),
        pytest.param([V6], there(V4), [("Remove", NAME), ("Await", NAME)], id="another-family"),
        pytest.param(
            [{"hostname": "lb.example"}],
            there(V4, V6),
            [("Remove", NAME), ("Remove", SECOND), ("Await", NAME)],
            id="a-name-instead-of-addresses",
        ),
        pytest.param(
            [V4, V6],
            there({"hostname": "lb.example"}),
            [("Remove", NAME), ("Await", NAME), ("Await", NAME)],
            id="addresses-instead-of-a-name",
        ),
        pytest.param([V4, V6], there(V6), [("Remove", NAME), ("Await", NAME), ("Make", SECOND)],
                     id="the-first-family-comes-second"),
        pytest.param([V4], there(V4, metadata={**there(V4)[NAME].metadata, **LEAVING}), [("Await", NAME)],
                     id="deleted-by-hand"),
        pytest.param([V4], there(V4, host="old.test"), [("Remove", "web-46c3387a"), ("Make", NAME)],
                     id="IG-3-another-host"),
        pytest.param([V4], there(V4, metadata={"labels": {}}), [("Correct", NAME)], id="labels-taken-off"),
        pytest.param([V4], there(V4, metadata={"ownerReferences": []}), [("Correct", NAME)],
                     id="owner-taken-off"),
        pytest.param([V4], there(V4, metadata={"annotations": {}}), [("Correct", NAME)],
                     id="A-1-confirmation-taken-off"),
        pytest.param([V4], there(V4, metadata={"ownerReferences": [FRIEND, OURS]}), [],
                     id="another-owner-beside-us"),
        pytest.param([V4], there(V4, metadata={"ownerReferences": [FORMER]}), [("Correct", NAME)],
                     id="of-a-former-ingress"),
        pytest.param([V4], there(V4, metadata={"ownerReferences": [FOREIGN]}), [("LeaveAlone", NAME)],
                     id="of-another-ingress"),
        pytest.param([V4], there(V4, metadata={"labels": {}, "ownerReferences": []}), [("LeaveAlone", NAME)],
                     id="of-somebody"),
        pytest.param([V4], there(V4, metadata={"generation": 3}), [("Correct", NAME)],
                     id="T-4-edited-and-edited-back"),
        pytest.param([V4], there(V4, metadata={"generation": 3}, status=FAILED), [],
                     id="T-3-somebody-is-at-it"),
        pytest.param([V4], there(V4, spec={"ttl": 60}), [], id="what-others-have-added-stays"),
    ],
)  # fmt: skip
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
