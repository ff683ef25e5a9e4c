"""Which Machines a MachineSet owns, adopts and releases."""

from __future__ import annotations

from dataclasses import replace

from tests.support.machinefacts import machine, machine_set
from windowbox.models.objects import Object
from workers.machines.set.claims import claims


def test_a_set_that_goes_keeps_machines_its_selector_no_longer_matches() -> None:
    owner = machine_set("pool-x", 1).object
    stray = replace(machine("m"), owner=owner.uid, labels={"name": "another"})
    assert claims(owner, [stray]).released == [stray]
    going = Object({**owner.raw, "metadata": {**owner.metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert claims(going, [stray]).owned == [stray]
