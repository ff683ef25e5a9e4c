"""Machines that the cluster autoscaler has chosen: by an annotation of their MachineDeployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import Object
from workers.machines.facts import MachineFacts

_MOST = 1000


@dataclass(frozen=True)
class Chosen:
    """What the annotation is to be, and which machines are to be marked, since when."""

    annotation: str | None
    """None if it is to be taken away."""
    marks: tuple[tuple[MachineFacts, str], ...] = ()


def chosen(deployment: Object, machines: Iterable[MachineFacts], now: datetime) -> Chosen | None:
    """What to make of the annotation; None if there is none."""
    text = str(deployment.annotations.get(keys.TRIGGER_DELETION) or "")
    if not text:
        return None
    scaled = str(deployment.annotations.get(keys.SCALER_TIME) or "") or spelled(now)
    by_name = {one.name: one for one in machines}
    kept: list[str] = []
    marks: list[tuple[MachineFacts, str]] = []
    for entry in text.split(",")[:_MOST]:
        name, tilde, time = entry.partition("~")
        time = time if tilde else scaled
        machine = by_name.get(name)
        if instant(time) is None or machine is None or machine.failed or machine.terminating:
            continue
        kept.append(f"{name}~{time}")
        if not _is_marked(machine.annotations):
            marks.append((machine, machine.annotations.get(keys.MARKED_FOR_DELETION) or time))
    return Chosen(",".join(kept) or None, tuple(marks))


def _is_marked(annotations: Mapping[str, str]) -> bool:
    return annotations.get(keys.PRIORITY) == "1" and bool(annotations.get(keys.MARKED_FOR_DELETION))
