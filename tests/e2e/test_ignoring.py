"""Workers that act on every new spec, whether or not a client asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.servers import zoneserver
from tests.e2e import client, zones
from tests.e2e.client import Space, ready
from tests.e2e.smallworld import SmallWorld, small_world
from tests.e2e.test_shoots import FAILED, FORCED
from tests.e2e.witness import Witness
from tests.support.rules import rule
from tests.support.servers import ControlPlane, NameServer
from workers.core.lifecycle.shootfacts import Blocked


@pytest.fixture(scope="module")
def eager(
    control_plane: ControlPlane, name_servers: dict[str, NameServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallWorld]:
    """Serves the class garden, and cares for no annotation."""
    others = dict(name_servers)
    named = others.pop(zoneserver.ZONE)
    folder = tmp_path_factory.mktemp("world") / "eager"
    options = {"classes": ["garden"], "ignore_operation_annotation": True}
    with small_world(control_plane, folder, named, others, **options) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["anywhere", "in-a-shoot"])
def place(
    request: pytest.FixtureRequest, control_plane: ControlPlane, witness: Witness, eager: SmallWorld
) -> Space:
    made = client.space(control_plane.api, witness, eager.named.zone, shoot=request.param)
    made.cluster()
    return made


def notes(runs: list[Any]) -> list[str]:
    return [run.note for run in runs if run.outcome == "succeeded"]


@rule("T-5", "C.5-5", "P-1")
def test_a_new_spec_is_enough(eager: SmallWorld, place: Space) -> None:
    record = place.served(class_="garden")
    record.patch({"spec": {"values": ["10.0.0.2"]}})
    record.until(lambda now: bool(now and now.generation == 2 and ready(now)))
    assert zones.answers(eager.named, record.fqdn) == ["10.0.0.2"]


@rule("T-6", "T-7", "B.25")
def test_a_change_of_the_cluster_triggers_a_run(eager: SmallWorld, place: Space) -> None:
    record = place.served(class_="garden")
    place.cluster(**FORCED)
    eager.runs(record, until=lambda runs: notes(runs) == ["Create", "Reconcile"])


@rule("T-6", "T-8", "T-9")
def test_records_resume_when_a_failed_shoot_recovers(
    control_plane: ControlPlane, witness: Witness, eager: SmallWorld
) -> None:
    place = client.space(control_plane.api, witness, eager.named.zone, shoot=True)
    place.cluster(**FAILED)
    record = place.record(class_="garden")
    eager.runs(record, until=lambda runs: any(run.note == Blocked.FAILED for run in runs))
    place.cluster()
    record.until_ready()
