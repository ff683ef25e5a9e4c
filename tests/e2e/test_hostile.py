"""Many DNSRecords with nonsense in every field, among good ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TypeVar

import pytest

from tests.e2e import zones
from tests.e2e.client import OPERATION, TIMESTAMP, Record, Space, failed, ready, stamp
from tests.e2e.smallworld import INNER, KEYED, SmallWorld
from tests.support.hostile import manifests
from tests.support.hostile.values import TEXTS
from windowbox.errors import WindowboxError
from windowbox.models.extensions import instant
from windowbox.models.objects import Object

ROW = next(row for row in manifests.SERVED if row.pool == "dnsrecord")

T = TypeVar("T")
R = TypeVar("R")

PLACES = ("", "ns.", "registry.", "deep.registry.", "*.", "*.x.", *(f"n{n}." for n in range(20)))
"""Names a zone lives on, names it has given away, names that hide others, and ordinary ones."""
LABELS = ("*", "_x", "a", "a" * 63, "a" * 64, "-", "ä", "A b", "", "xn--", "1", "\\000")
VALUES = ("10.0.0.1", "10.0.0.256", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "0x7f.1", '"', "x" * 5000, "0")
TYPES = ("A", "AAAA", "CNAME", "TXT") * 3 + ("MX", "a", "", "TYPE1")


def nonsense(number: int, space: Space) -> manifests.Hostile:
    """The same every time: a record with some spoilt fields, and a name or values that only look right."""
    chance = Random(number)
    made = manifests.hostile(ROW, number, space.namespace, chance)
    spec, zone = made.body["spec"], space.zone
    if chance.random() < 0.8:
        wrong = [*chance.choices(LABELS, k=chance.randrange(5)), chance.choice([f"{zone}.", INNER, KEYED])]
        spec["name"] = chance.choice([chance.choice(PLACES) + zone, ".".join(wrong), f"x{zone}"])
        spec["recordType"] = chance.choice(TYPES)
    if chance.random() < 0.6:
        spec["values"] = chance.choices([*VALUES, chance.choice(TEXTS), zone], k=chance.randrange(5))
    if chance.random() < 0.1:
        spec["zone"] = chance.choice([zone, INNER, chance.choice(TEXTS)])
    return made


def at_once(act: Callable[[T], R], items: list[T]) -> list[R]:
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(act, items))


def understood(now: Object | None) -> Object | None:
    """The object without an operation that is none of ours, and a time that is none: both stay for ever."""
    if now is None:
        return None
    annotations = dict(now.annotations)
    if annotations.get(OPERATION) not in ("reconcile", "migrate", "restore"):
        annotations.pop(OPERATION, None)
    if instant(annotations.get(TIMESTAMP)) is None:
        annotations.pop(TIMESTAMP, None)
    return Object({**now.raw, "metadata": {**now.metadata, "annotations": annotations}})


def ended(now: Object | None) -> bool:
    """A clear end: what went wrong is said in a sentence, or all is well."""
    return ready(understood(now)) or bool(
        now
        and failed(now)
        and now.status["observedGeneration"] == now.generation
        and len(str(now.status["lastError"]["description"])) > len("Error reconciling DNSRecord: ")
        and now.status["lastError"]["description"] == now.last_operation["description"]
    )


@pytest.mark.parametrize("many", [25, pytest.param(120, marks=[pytest.mark.long, pytest.mark.slow])])
def test_nonsense_fails_and_its_neighbours_are_served(world: SmallWorld, space: Space, many: int) -> None:
    def create(number: int) -> Record | None:
        made = nonsense(number, space)
        try:
            record = space.raw(made.body["spec"], made.body["metadata"]["annotations"])
            if made.status is not None:
                record.patch({"status": made.status}, "/status")
                record.annotate(**{OPERATION: "reconcile", TIMESTAMP: stamp()})
        except WindowboxError:
            return None  # the API server did not let it through
        return record

    neighbours = [space.record() for _ in range(3)]
    hostile = [record for record in at_once(create, list(range(many))) if record]
    neighbours += [space.record() for _ in range(3)]
    for neighbour in neighbours:
        neighbour.until_ready()
        assert zones.answers(world.named, neighbour.fqdn) == ["10.0.0.1"]

    assert len(hostile) > many / 2
    for record in hostile:
        record.until(ended)
    assert world.alive()

    at_once(Record.delete, hostile)
    for record in hostile:
        record.until_gone()
    assert world.alive()
