"""Feature gates of Kubernetes: which versions have them, and which lock them to their default."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from clouds.frame.decoding import Struct, Switch
from clouds.frame.problems import Problem, forbidden, invalid
from windowbox.models import constraints
from windowbox.models.constraints import Version

_PATH = "spec.provider.controlPlaneConfig.cloudControllerManager.featureGates"


class _Gate(NamedTuple):
    added: Version | None
    removed: Version | None
    locked: Version | None
    on: bool
    """The default."""


class CloudControllerManager(Struct):
    """A part of each cloud's ControlPlaneConfig."""

    feature_gates: dict[str, Switch] | None = None


def problems(manager: CloudControllerManager | None, kubernetes: str) -> Iterator[Problem]:
    """ALL-8: gates that this version of Kubernetes does not have, or does not let anyone switch."""
    if manager is None or not manager.feature_gates:
        return
    version = constraints.version(kubernetes)
    for name, on in manager.feature_gates.items():
        gate, where = _gates().get(name), f"{_PATH}.{name}"
        if gate is None:
            yield invalid(where, name, f"unknown feature gate {name}: correct the name, or leave it out")
        elif (gate.added and version < gate.added) or (gate.removed and version >= gate.removed):
            yield forbidden(where, f"not supported in Kubernetes version {kubernetes}: leave it out")
        elif gate.locked and version >= gate.locked and on != gate.on:
            detail = f"Kubernetes {kubernetes} locks it to {gate.on}: leave it out"
            yield forbidden(where, f"cannot set feature gate to {on}, {detail}")


@cache
def _gates() -> dict[str, _Gate]:
    with (files(__package__) / "featuregates.csv").open() as table:
        return {row["name"]: _gate(row) for row in csv.DictReader(table)}


def _gate(row: Mapping[str, str]) -> _Gate:
    added, removed, locked = (
        constraints.version(row[each]) if row[each] else None for each in ("added", "removed", "locked")
    )
    return _Gate(added, removed, locked, on=bool(row["default"]))
