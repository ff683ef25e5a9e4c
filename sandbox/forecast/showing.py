"""Which parts of the demo a machine can show, and what the others lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandbox.forecast.facts import Facts, Place, Purpose
from sandbox.nodes import suitability

Name = Literal["records", "webhook", "balancer", "owners", "bastion", "shoot"]

TITLES: dict[Name, str] = {
    "records": "DNS records",
    "webhook": "a webhook",
    "balancer": "a load balancer in front of real Pods",
    "owners": "an Infrastructure",
    "bastion": "a Bastion",
    "shoot": "a Shoot with two machines",
}
SSH, HTTP = 22, 80
PORTS = (SSH, HTTP)
"""Ports of load balancers in the examples."""

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Need:
    """What a sandbox uses: memory and disk in bytes, inotify instances."""

    memory: int
    disk: int
    inotify: int


SERVERS = Need(memory=600 * _MIB, disk=300 * _MIB, inotify=8)
NODES = Need(memory=1100 * _MIB, disk=700 * _MIB, inotify=32)
SHOOT = Need(memory=2300 * _MIB, disk=3 * _GIB, inotify=70)
"""Each includes the former."""
PROGRAMS, BUILD = 1 * _GIB, 7 * _GIB
"""Bytes of all programs, and of what Go keeps between builds."""
COMPILING = 1700 * _MIB
"""Memory of two linkers."""


@dataclass(frozen=True)
class Part:
    """A part of the demo, and what it lacks; nothing if it is shown."""

    name: Name
    lacking: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.name]


def parts(facts: Facts) -> list[Part]:
    """All parts, in the order in which they are shown."""
    nothing, nodes = impossible(facts), without_nodes(facts)
    real = nodes and f"real nodes need {nodes}"
    scarce = _scarce(facts, SHOOT)
    too_little = scarce and f"it needs {scarce}"
    return [
        Part("records", nothing),
        Part("webhook", nothing),
        Part("balancer", nothing or real or facts.ports.get(HTTP, "")),
        Part("owners", nothing),
        Part("bastion", nothing or facts.ports.get(SSH, "")),
        Part("shoot", nothing or real or facts.ports.get(HTTP, "") or too_little),
    ]


def impossible(facts: Facts) -> str:
    """Why nothing can be shown; empty if something can."""
    if facts.system and not facts.installs:
        return f"BIND 9 ({', '.join(facts.system)}) is not here: {facts.bind_command}"
    return _scarce(facts, SERVERS) or full(facts)


def without_nodes(facts: Facts) -> str:
    """What this machine lacks for real nodes; empty if nothing."""
    if reason := suitability.unsuited(facts.host):
        return reason
    if facts.packages and not facts.installs:
        return f"{', '.join(facts.packages)}: install these packages"
    if facts.free_parts == 0:
        return "addresses, and this host has routes to all: `ip route`"
    return _scarce(facts, NODES)


def used_ports(facts: Facts) -> tuple[int, ...]:
    """The ports of load balancers of all parts that are otherwise shown."""
    return (SSH,) if without_nodes(facts) else (SSH, HTTP)


def full(facts: Facts) -> str:
    """Which disk is too small for what it gets, or cannot be written; empty if none."""
    disks: dict[int, list[Place]] = {}
    for place in facts.places:
        if wanted_in(place.purpose, facts):
            if not place.writable:
                return f"the right to write in {place.folder}"
            disks.setdefault(place.disk, []).append(place)
    for places in disks.values():
        free, where = places[0].free, " and ".join(place.folder for place in places)
        if free < (wanted := sum(wanted_in(purpose, facts) for purpose in {p.purpose for p in places})):
            return f"{gigabytes(wanted)} of disk in {where}, where {gigabytes(free)} are free"
    return ""


def little(facts: Facts, need: Need) -> int | None:
    """The free bytes for the sandbox, if they are too few."""
    return next((p.free for p in facts.places if p.purpose == "sandbox" and p.free < need.disk), None)


def wanted_in(purpose: Purpose, facts: Facts) -> int:
    """Bytes that the demo writes there, without the Shoot."""
    match purpose:
        case "programs":
            return PROGRAMS if facts.lacking else 0
        case "build":
            return BUILD if facts.compiled else 0
        case "sandbox":
            return (SERVERS if suitability.unsuited(facts.host) else NODES).disk


def gigabytes(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


def _scarce(facts: Facts, need: Need) -> str:
    """What is too little for `need`; empty if all is enough, or not known."""
    if facts.running:
        return ""  # it has what it needs
    if facts.memory is not None and facts.memory < need.memory:
        return f"{gigabytes(need.memory)} of memory, of which {gigabytes(facts.memory)} are available"
    if facts.inotify_free is not None and facts.inotify_free < need.inotify:
        more = 8 * need.inotify
        return (
            f"{need.inotify} inotify instances, of which {facts.inotify_free} are free: "
            f"sudo sysctl fs.inotify.max_user_instances={more}"
        )
    if (free := little(facts, need)) is not None:
        return f"{gigabytes(need.disk)} of disk for the sandbox, where {gigabytes(free)} are free"
    return ""
