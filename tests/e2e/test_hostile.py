"""Three hundred DNSRecords with nonsense in every field, among good ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e import zones
from tests.e2e.client import OPERATION, TIMESTAMP, Record, Space, failed, ready, stamp
from tests.e2e.smallworld import INNER, KEYED, SmallWorld
from windowbox.errors import WindowboxError
from windowbox.models.extensions import instant
from windowbox.models.objects import Object

MANY = 120
ZONE = "local.gardener.cloud"

T = TypeVar("T")
R = TypeVar("R")

ANYTHING = st.text(max_size=30) | st.sampled_from(
    ["", ".", "*", "..", "\0", "a" * 300, "\ud800", "${x}", "\n"]
)
PLACES = st.sampled_from(["", "ns.", "registry.", "deep.registry.", "*.", "*.x."])
"""Names a zone lives on, names it has given away, and names that hide others."""
LABELS = st.sampled_from(["*", "_x", "a", "a" * 63, "a" * 64, "-", "ä", "A b", "", "xn--", "1", "\\000"])
GOOD_NAMES = st.integers(0, 60).map(lambda n: f"n{n}.{ZONE}") | PLACES.map(lambda place: place + ZONE)
NAMES = (
    GOOD_NAMES
    | ANYTHING
    | st.builds(
        lambda labels, zone: ".".join([*labels, zone]),
        st.lists(LABELS, max_size=5),
        st.sampled_from([ZONE, f"{ZONE}.", INNER, KEYED, "", "x" + ZONE]),
    )
)
VALUES = ANYTHING | NAMES | st.sampled_from(
    ["10.0.0.1", "10.0.0.256", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "0x7f.1", '"', "x" * 5000, "0"]
)  # fmt: skip
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 120, 2**31 - 1, 2**31, 2**63 - 1])

SPECS = st.fixed_dictionaries(
    {
        "type": st.just("local"),
        "name": GOOD_NAMES | NAMES,
        "recordType": st.sampled_from(["A", "AAAA", "CNAME", "TXT"] * 3 + ["MX", "a", "", "TYPE1"]),
        "values": st.lists(VALUES, max_size=4) | st.just([f"10.0.{n % 256}.1" for n in range(130)]),
        "secretRef": st.fixed_dictionaries({}, optional={"name": ANYTHING, "namespace": ANYTHING}),
    },
    optional={
        "ttl": INTEGERS,
        "zone": st.just(ZONE) | NAMES,
        "region": ANYTHING,
        "class": st.sampled_from(["shoot", "seed"]),
        "providerConfig": st.dictionaries(ANYTHING, JSON, max_size=3),
    },
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        OPERATION: ANYTHING | st.sampled_from(["reconcile", "restore", "keepalive", "Reconcile"]),
        TIMESTAMP: ANYTHING | st.sampled_from(["0000-00-00T00:00:00Z", "2026-02-30T25:61:61+99:99", "1e9"]),
        "example.com/note": ANYTHING,
    },
)
TIMES = st.sampled_from(["0001-01-01T00:00:00Z", "2026-09-01T10:15:31+14:00", "9999-12-31T23:59:59Z"])
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "observedGeneration": INTEGERS,
        "zone": NAMES,
        "state": st.dictionaries(ANYTHING, JSON, max_size=3),
        "lastError": st.fixed_dictionaries({"description": ANYTHING, "codes": st.lists(ANYTHING)}),
        "lastOperation": st.fixed_dictionaries(
            {
                "type": ANYTHING | st.sampled_from(["Create", "Restore", "Delete"]),
                "state": ANYTHING | st.sampled_from(["Succeeded", "Failed"]),
                "description": ANYTHING,
                "progress": st.integers(-(2**31), 2**31 - 1),
                "lastUpdateTime": TIMES,
            }
        ),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": ANYTHING | st.just("Created"), "status": ANYTHING | st.just("False")}
                | {"reason": ANYTHING, "message": ANYTHING}
                | {"lastTransitionTime": TIMES, "lastUpdateTime": TIMES}
            ),
            max_size=2,
        ),
    },
)  # fmt: skip
NONSENSE = st.tuples(SPECS, ANNOTATIONS, st.none() | STATUSES)


def nonsense() -> list[tuple[dict[str, Any], dict[str, str], dict[str, Any] | None]]:
    """The same every time."""
    made = []

    @settings(
        max_examples=MANY,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(NONSENSE)
    def make(one: Any) -> None:
        made.append(one)

    make()
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


@pytest.mark.slow
def test_nonsense_fails_and_its_neighbours_are_served(world: SmallWorld, space: Space) -> None:
    def create(one: tuple[dict[str, Any], dict[str, str], dict[str, Any] | None]) -> Record | None:
        spec, annotations, status = one
        try:
            record = space.raw(spec, annotations)
            if status is not None:
                record.patch({"status": status}, "/status")
                record.annotate(**{OPERATION: "reconcile", TIMESTAMP: stamp()})
        except WindowboxError:
            return None  # the API server did not let it through
        return record

    made = nonsense()
    names = [space.name("good") for _ in range(6)]
    neighbours = [space.record(name, ["10.0.0.1"]) for name in names[:3]]
    hostile = [record for record in at_once(create, made) if record]
    neighbours += [space.record(name, ["10.0.0.1"]) for name in names[3:]]
    for name, neighbour in zip(names, neighbours, strict=True):
        neighbour.until_ready()
        assert zones.answers(world.named, name) == ["10.0.0.1"]

    assert len(hostile) > MANY / 2
    for record in hostile:
        record.until(ended)
    assert world.alive()

    at_once(Record.delete, hostile)
    for record in hostile:
        record.until_gone()
    assert world.alive()
