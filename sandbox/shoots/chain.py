"""What a Shoot consists of, in the order in which one needs the other, and what it waits for. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from windowbox.models.extensions import instant

Object = Mapping[str, Any]

PATIENCE = timedelta(seconds=60)
"""After which something that is waited for counts as blocking."""


class State(StrEnum):
    """How far a link of the chain is; its value is the mark in the picture."""

    DONE = "✓"
    WAITING = "…"
    FAILED = "✗"
    NONE = "-"


@dataclass(frozen=True)
class Link:
    """One thing of a Shoot, and what it waits for."""

    name: str
    state: State
    detail: str = ""
    since: datetime | None = None
    """Since when it has been like this, as far as it tells."""
    next_step: str = ""
    """What shows more of it."""
    needs: tuple[str, ...] = ()
    """The names of the links that have to be done before."""


@dataclass(frozen=True)
class Observed:
    """What there is of a Shoot, as API servers and the bus tell it."""

    technical_id: str
    began: datetime | None
    """When it was created."""
    server: Link
    extensions: Mapping[str, Object | None]
    """By kind: Infrastructure, ControlPlane, OperatingSystemConfig, Worker."""
    managed: Sequence[Object]
    """ManagedResources."""
    membership: Mapping[str, Any] | None
    """How its cluster takes part: `asleep`, and the state of each watch."""
    machines: Sequence[Object]
    nodes: Sequence[Object]
    records: Sequence[Object]
    """DNSRecords."""
    services: Sequence[Object]
    """Of type LoadBalancer, in the Shoot."""
    webhooks: Sequence[Object]
    """Configurations in the Shoot."""


_KINDS: dict[str, tuple[str, ...]] = {
    "Infrastructure": (),
    "ControlPlane": (),
    "OperatingSystemConfig": (),
    "Worker": ("Infrastructure", "OperatingSystemConfig"),
}
_CONFIGURATION = "ERR_CONFIGURATION_PROBLEM"
_MANAGED, _WEBHOOKS = "ManagedResource", "extension-controlplane-shoot-webhooks"
_MANAGED_NEEDS = {
    _WEBHOOKS: ("API server",),
    "extension-controlplane-shoot": ("ControlPlane", "nodes"),
    "extension-controlplane-storageclasses": ("ControlPlane",),
}
"""What runs in the Shoot needs nodes to be healthy."""


def chain(found: Observed) -> list[Link]:
    """All links, each after those that it needs."""
    extensions = {kind: _extension(kind, found) for kind in _KINDS}
    links = [
        found.server,
        extensions["Infrastructure"],
        extensions["ControlPlane"],
        *(_managed(one, found) for one in found.managed),
        _membership(found.membership),
        extensions["OperatingSystemConfig"],
        *(_machine(one, found.technical_id) for one in found.machines),
        _nodes(found.nodes, len(found.machines)),
        extensions["Worker"],
        _counted("DNSRecords", found.records, _record_done, f"windowbox trace dns {found.technical_id}/NAME"),
        _counted("load balancers", found.services, _has_address, "windowbox lb list", needs=("nodes",)),
        _webhooks(found.webhooks),
        *_conditions(found.extensions.values()),
    ]
    # What tells no time has been like this since the beginning, for all that is known.
    return [link if link.since else dataclasses.replace(link, since=found.began) for link in links]


def blocker(links: Sequence[Link], now: datetime) -> Link | None:
    """The first link that has waited, or failed, for too long although all that it needs is done."""
    done = {link.name for link in links if link.state in (State.DONE, State.NONE)}
    for link in links:
        unfinished = link.state in (State.WAITING, State.FAILED) and set(link.needs) <= done
        if unfinished and link.since and now - link.since >= PATIENCE:
            return link
    return None


def picture(links: Sequence[Link], now: datetime) -> list[str]:
    """One line for each link; last what blocks the Shoot, and what to do next."""
    width = max(len(link.name) for link in links)
    lines = [_line(link, links, width, now) for link in links]
    if found := blocker(links, now):
        assert found.since
        lines.append(f"Blocked for {_seconds(now - found.since)} by {found.name}: {found.detail}")
        lines.append(f"Next: {found.next_step}")
    return lines


def _line(link: Link, links: Sequence[Link], width: int, now: datetime) -> str:
    text = f"  {link.state} {link.name:<{width}}  {link.detail}".rstrip()
    if link.state not in (State.WAITING, State.FAILED):
        return text
    unfinished = {one.name for one in links if one.state in (State.WAITING, State.FAILED)}
    if waits := [name for name in link.needs if name in unfinished]:
        text += f" (waits for {', '.join(waits)})"
    return f"{text}, for {_seconds(now - link.since)}" if link.since else text


def _seconds(duration: timedelta) -> str:
    return f"{max(0, int(duration.total_seconds()))} s"


def _extension(kind: str, found: Observed) -> Link:
    """An extension object, by its last operation."""
    object, needs = found.extensions[kind], _needs(kind, found)
    if object is None:
        shoot = found.technical_id.rpartition("--")[2]
        step = f"windowbox shoot delete {shoot}, then windowbox shoot create {shoot}"
        return Link(kind, State.WAITING, "does not exist", None, step, needs)
    name, status = object["metadata"]["name"], object.get("status") or {}
    step = f"windowbox trace {kind.lower()} {found.technical_id}/{name}"
    operation = status.get("lastOperation") or {}
    since = instant(operation.get("lastUpdateTime")) or _created(object)
    state = operation.get("state")
    if state == "Succeeded" and status.get("observedGeneration") == object["metadata"].get("generation"):
        return Link(kind, State.DONE, "Succeeded", since, step, needs)
    said = str(operation.get("description") or "nobody has taken it up: is a worker running?")
    if _CONFIGURATION in ((status.get("lastError") or {}).get("codes") or ()):
        asked = f"annotate {kind.lower()} {name} gardener.cloud/operation=reconcile"
        step = f"correct that, then kubectl -n {found.technical_id} {asked}"
    return Link(kind, State.FAILED if state == "Error" else State.WAITING, said, since, step, needs)


def _needs(kind: str, found: Observed) -> tuple[str, ...]:
    """A ControlPlane that has handed webhooks over waits until they are applied."""
    names = {one["metadata"]["name"] for one in found.managed}
    if kind == "ControlPlane" and _WEBHOOKS in names:
        return (*_KINDS[kind], f"{_MANAGED} {_WEBHOOKS}")
    return _KINDS[kind]


def _managed(object: Object, found: Observed) -> Link:
    """A ManagedResource, by its conditions."""
    name = f"{_MANAGED} {object['metadata']['name']}"
    # While hibernated, nothing in the Shoot can be checked: its resource manager has ended, too.
    asleep = found.membership and found.membership.get("asleep")
    if asleep and not object.get("spec", {}).get("class"):
        return Link(name, State.DONE, "not checked while hibernated")
    step = f"kubectl -n {found.technical_id} describe managedresource {object['metadata']['name']}"
    conditions = {one.get("type"): one for one in _list(object, "conditions")}
    needs = _MANAGED_NEEDS.get(object["metadata"]["name"], ())
    for type_ in ("ResourcesApplied", "ResourcesHealthy"):
        one = conditions.get(type_, {})
        if one.get("status") != "True":
            said = f"{type_} is {one.get('status') or 'not reported yet'}: {one.get('message') or ''}"
            since = instant(one.get("lastTransitionTime")) or _created(object)
            return Link(name, State.WAITING, said.rstrip(": "), since, step, needs)
    return Link(name, State.DONE, "applied, healthy", None, step, needs)


def _membership(found: Mapping[str, Any] | None) -> Link:
    name, step = "takes part", "windowbox clusters list"
    needs = ("ControlPlane",)
    if found is None:
        return Link(name, State.WAITING, "its cluster has not joined", None, step, needs)
    if found.get("asleep"):
        return Link(name, State.DONE, "hibernated; its addresses stay reserved", None, step, needs)
    states = found.get("watches") or {}
    broken = [f"{kind}: {state}" for kind, state in sorted(states.items()) if state != "watching"]
    if broken or not states:
        return Link(name, State.WAITING, "; ".join(broken) or "nobody watches it yet", None, step, needs)
    return Link(name, State.DONE, f"watched: {', '.join(sorted(states))}", None, step, needs)


def _machine(object: Object, namespace: str) -> Link:
    current = (object.get("status") or {}).get("currentStatus") or {}
    name, phase = f"machine {object['metadata']['name']}", str(current.get("phase") or "new")
    step = f"windowbox trace machine {namespace}/{object['metadata']['name']}"
    if phase == "Running":
        return Link(name, State.DONE, phase, None, step)
    operation = (object.get("status") or {}).get("lastOperation") or {}
    said = f"{phase}: {operation.get('description') or 'nothing is told yet'}"
    since = instant(operation.get("lastUpdateTime")) or _created(object)
    state = State.FAILED if phase == "Failed" else State.WAITING
    return Link(name, state, said, since, step, ("takes part",))


def _nodes(nodes: Sequence[Object], machines: int) -> Link:
    ready = sum(map(_ready, nodes))
    state = State.DONE if ready >= machines else State.WAITING
    since = max((_created(node) for node in nodes), default=None, key=lambda at: at or _NEVER)
    return Link("nodes", state, f"{ready} of {machines} are Ready", since, "windowbox machine logs")


def _counted(name: str, objects: Sequence[Object], done: Any, step: str, needs: tuple[str, ...] = ()) -> Link:
    """Objects of which each is done, or not."""
    if not objects:
        return Link(name, State.NONE, "none")
    left = [one for one in objects if not done(one)]
    detail = f"{len(objects) - len(left)} of {len(objects)}"
    if not left:
        return Link(name, State.DONE, detail, None, step, needs)
    first = left[0]["metadata"]
    detail += f"; the first of the others is {first.get('namespace', '')}/{first['name']}"
    return Link(name, State.WAITING, detail, _created(left[0]), step, needs)


def _webhooks(configurations: Sequence[Object]) -> Link:
    count = sum(len(one.get("webhooks") or ()) for one in configurations)
    if not count:
        return Link("webhooks", State.NONE, "none")
    names = ", ".join(str(one["name"]).partition(".")[0] for c in configurations for one in c["webhooks"])
    return Link("webhooks", State.DONE, names)


def _conditions(objects: Iterable[Object | None]) -> list[Link]:
    links = []
    for object in objects:
        for one in _list(object, "conditions") if object else ():
            state = State.DONE if one.get("status") == "True" else State.WAITING
            detail = f"{one.get('status')}: {one.get('message') or ''}".rstrip(": ")
            since = instant(one.get("lastTransitionTime"))
            links.append(Link(str(one.get("type")), state, detail, since, "kubectl get workers -A -o yaml"))
    return links


def _record_done(record: Object) -> bool:
    return bool(((record.get("status") or {}).get("lastOperation") or {}).get("state") == "Succeeded")


def _has_address(service: Object) -> bool:
    return bool(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"))


def _ready(node: Object) -> bool:
    return any(
        one.get("type") == "Ready" and one.get("status") == "True" for one in _list(node, "conditions")
    )


def _list(object: Object, name: str) -> Sequence[Mapping[str, Any]]:
    return (object.get("status") or {}).get(name) or ()


def _created(object: Object) -> datetime | None:
    return instant(object["metadata"].get("creationTimestamp"))


_NEVER = datetime.min.replace(tzinfo=UTC)
