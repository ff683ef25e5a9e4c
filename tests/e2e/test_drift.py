"""What happens to the name server behind our back is put right, without a word to the objects."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e import zones
from tests.e2e.client import Record, Space
from tests.e2e.smallworld import SmallWorld


@pytest.fixture
def resting(space: Space) -> tuple[Record, str]:
    """A record with which all is well, and its name."""
    name = space.name("rest")
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    return record, name


def test_a_record_that_somebody_removed_comes_back(world: SmallWorld, resting: tuple[Record, str]) -> None:
    record, name = resting
    before = len(record.history)
    zones.remove(world.named, name)
    zones.until(world.named, name, ["10.0.0.1"])
    assert len(record.history) == before


def test_a_record_that_somebody_changed_is_changed_back(
    world: SmallWorld, resting: tuple[Record, str]
) -> None:
    _, name = resting
    zones.replace(world.named, name, "A", "10.6.6.6")
    zones.until(world.named, name, ["10.0.0.1"])
    assert zones.ttl(world.named, name) == 120


def test_a_zone_that_was_lost_is_filled_again(world: SmallWorld, resting: tuple[Record, str]) -> None:
    record, name = resting
    before = len(record.history)
    world.named.stop()
    shutil.rmtree(world.named.folder / "zones")
    world.named.start()
    zones.until(world.named, name, ["10.0.0.1"])
    assert len(record.history) == before


def test_a_zone_lost_while_stopped_is_refilled(world: SmallWorld, resting: tuple[Record, str]) -> None:
    _, name = resting
    world.kill("work")
    zones.remove(world.named, name)
    with world.settings("work", "dns", drift_interval=3600):
        world.start("work")
        zones.until(world.named, name, ["10.0.0.1"])
    world.kill("work")
    world.start("work")


def test_a_deleted_record_is_not_put_back(world: SmallWorld, space: Space) -> None:
    gone, kept = space.name("gone"), space.name("kept")
    record = space.record(gone, ["10.0.0.1"])
    record.until_ready()
    space.record(kept, ["10.0.0.1"]).until_ready()
    record.delete()
    record.until_gone()
    zones.remove(world.named, kept)
    zones.until(world.named, kept, ["10.0.0.1"])  # so the zone was looked through since
    assert zones.answers(world.named, gone) == []
