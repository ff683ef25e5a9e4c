"""What an update does, and the form in which clouds declare it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clouds.frame.cloud import Json
from clouds.frame.decoding import Config
from clouds.frame.machineclasses import Machines
from clouds.frame.pools import Inputs, Site
from windowbox.models.gardener.worker import WorkerPool


class Kind(StrEnum):
    """What happens, worst first."""

    REFUSED = "refused"
    LASTING = "lasting"
    """It cannot be taken back."""
    ROLLS = "rolls"
    """Machines are replaced by others."""
    EGRESS = "egress"
    """Connections out of the cluster break."""
    REMOVES = "removes"
    """Machines are removed, if so many run."""
    UPDATES = "updates"
    """Nodes are updated in place: they are drained, and their machines stay."""
    OPERATION = "operation"
    """It waits for an annotation."""
    ADDS = "adds"
    """Machines are added."""
    IN_PLACE = "in-place"
    """Nothing is interrupted."""


@dataclass(frozen=True)
class Effect:
    kind: Kind
    path: str
    """Of the field that changed; of refused changes as the real extension spells it."""
    old: Any = None
    new: Any = None
    why: str = ""
    rule: str = ""
    """Of the contract, where one says so."""
    pools: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    """Where not all zones of a pool are concerned."""


def always(old: Any, new: Any) -> bool:
    return True


def given_up(old: Any, new: Any) -> bool:
    """Whether a former address is used no longer. Without a list there is one that Gardener made."""
    return not old or any(one not in (new or ()) for one in old)


@dataclass(frozen=True)
class Rule:
    """What the change of a field does."""

    kind: Kind
    why: str
    id: str = ""
    when: Callable[[Any, Any], bool] = always
    """Whether it does so for this old and new value."""


Rules = Mapping[str, Sequence[Rule]]
"""By the path of the field; elements of lists are `[]`."""
PROVIDER = "spec.provider"
NETWORKS = f"{PROVIDER}.infrastructureConfig.networks"
WORKERS = f"{PROVIDER}.workers"


def as_it_is(site: Site, before: Json | None) -> Site:
    return site


@dataclass(frozen=True)
class Changes:
    """What a cloud declares about updates. What has no rule changes in place, unless the hash has it."""

    machines: Machines
    hash_inputs: Callable[[WorkerPool, Site, str], Inputs]
    infrastructure: type[Config] | None
    control_plane: type[Config]
    worker: type[Config] | None
    rules: Rules
    annotations: Rules
    """By name: annotations of Shoots that the extension reads."""
    expected: Callable[[Site, Json | None], Site] = as_it_is
    """The site with what the hash reads of the Infrastructure's status; also by the Shoot before."""
    by_zone: bool = True
    """Whether each zone of a pool has its share of the machines."""


FLOW = Rule(Kind.LASTING, "the Infrastructure moves from Terraform to the flow reconciler", "ALL-F2")
"""Of the annotation use-flow."""


def flow_annotations(cloud: str) -> dict[str, list[Rule]]:
    """ALL-F2, ALL-F3."""
    return {f"{prefix}provider.extensions.gardener.cloud/use-flow": [FLOW] for prefix in ("", f"{cloud}.")}
