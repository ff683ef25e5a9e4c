"""Drift in the name server is corrected, without a write to the objects."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e import zones
from tests.e2e.client import Record, Space
from tests.e2e.smallworld import SmallWorld


@pytest.fixture
def resting(space: Space) -> Record:
    """A record that is ready."""
    return space.served()


def test_a_record_changed_or_removed_by_hand_is_restored(world: SmallWorld, resting: Record) -> None:
    before = len(resting.history)
    zones.replace(world.named, resting.fqdn, "A", "10.6.6.6")
    zones.until(world.named, resting.fqdn, ["10.0.0.1"])
    assert zones.ttl(world.named, resting.fqdn) == 120
    zones.remove(world.named, resting.fqdn)
    zones.until(world.named, resting.fqdn, ["10.0.0.1"])
    assert len(resting.history) == before


def test_a_lost_zone_is_refilled(world: SmallWorld, resting: Record) -> None:
    before = len(resting.history)
    world.named.stop()
    shutil.rmtree(world.named.folder / "zones")
    world.named.start()
    zones.until(world.named, resting.fqdn, ["10.0.0.1"])
    assert len(resting.history) == before


def test_a_zone_lost_while_stopped_is_refilled(world: SmallWorld, resting: Record) -> None:
    world.kill("work")
    zones.remove(world.named, resting.fqdn)
    with world.settings("work", "dns", drift_interval=3600):
        world.start("work")
        zones.until(world.named, resting.fqdn, ["10.0.0.1"])
    world.kill("work")
    world.start("work")


def test_a_deleted_record_is_not_recreated(world: SmallWorld, space: Space) -> None:
    gone, kept = space.served(), space.served()
    gone.delete()
    gone.until_gone()
    zones.remove(world.named, kept.fqdn)
    zones.until(world.named, kept.fqdn, ["10.0.0.1"])  # so the zone was looked through since
    assert zones.answers(world.named, gone.fqdn) == []
