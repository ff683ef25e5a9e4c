"""What a cloud makes of an Infrastructure: its objects, the networks of machines, and the status. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clouds.frame.gardenobjects import Networking, ProfileSpec, Worker
from clouds.frame.inventory import CloudObject, Found, Reference
from clouds.frame.problems import Problem, duplicate, invalid
from windowbox.errors import Malformed
from windowbox.models import fielderrors
from windowbox.models.objects import mapping

Json = dict[str, Any]
MOST_ZONES = 100
_ZONE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Site:
    """The facts that a plan is made of."""

    account: str
    technical_id: str
    region: str
    config: object
    """`spec.providerConfig` of the Infrastructure."""
    networking: Networking
    profile: ProfileSpec
    ssh_public_key: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict)
    """What ids and status may contain of the cloud's Secret, such as a subscription."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """`status.state` of the last run, or of another seed: `data` of an InfrastructureState."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """`status.providerStatus` of the last run."""
    pools: Sequence[Worker] = ()
    """Of the Shoot."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the Infrastructure."""


@dataclass(frozen=True)
class Subnet:
    """The addresses of machines."""

    cidr: str
    zone: str = ""
    """Empty: for machines of all zones."""


@dataclass(frozen=True)
class Opening:
    """Ports of machines that a security group opens."""

    protocol: str
    first: int = 0
    """0: all ports."""
    last: int = 0
    source: str = "0.0.0.0/0"


NODE_PORTS = (Opening("TCP", 30000, 32767), Opening("UDP", 30000, 32767))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The wanted cloud, in the order in which its objects are made."""

    objects: tuple[CloudObject, ...]
    provider_status: Json
    state: Json
    subnets: tuple[Subnet, ...]
    egress: tuple[str, ...] = ()
    """`status.egressCIDRs`."""
    uses: tuple[Reference, ...] = ()
    """Existing objects that the Shoot claims."""
    openings: tuple[Opening, ...] = NODE_PORTS
    networking: Mapping[str, list[str]] | None = None
    """`status.networking`, of clouds that report it."""


@dataclass(frozen=True)
class Planner:
    """How a cloud plans."""

    references: Callable[[Site], list[Reference]]
    """The existing objects that the config names. Malformed if it cannot be read."""
    plan: Callable[[Site, Found], Plan]
    """The plan; an error with the code of Gardener if the cloud would refuse it (R rules)."""


def state_object(api_version: str, data: Mapping[str, str], **more: Any) -> Json:
    """`status.state` (ALL-F4)."""
    return {"apiVersion": api_version, "kind": "InfrastructureState", "data": dict(data), **more}


def data_of(site: Site) -> dict[str, str]:
    """The data of the state before."""
    found = mapping(site.state.get("data"))
    return {name: value for name, value in found.items() if isinstance(value, str)}


def require_valid(problems: Iterable[Problem]) -> None:
    """Malformed if admission would have refused the config: an Infrastructure can be written without it."""
    if found := fielderrors.first(map(str, problems)):
        raise Malformed(fielderrors.joined(found))


def require_zones(names: Collection[str], path: str) -> None:
    """Malformed if zones are too many, there twice, or such that no object can be named after them."""
    if len(names) > MOST_ZONES:  # each needs many objects, and some time
        raise Malformed(fielderrors.too_many(path, len(names), MOST_ZONES))
    require_valid(_wrong_zones(names, path))


def _wrong_zones(names: Iterable[str], path: str) -> Iterator[Problem]:
    used: set[str] = set()
    for i, name in enumerate(names):
        where = f"{path}[{i}].name"
        if not _ZONE.fullmatch(name):
            yield invalid(where, name, "has to be a name in lower case such as eu-central-1a")
        if name in used:
            yield duplicate(where, name)
        used.add(name)
