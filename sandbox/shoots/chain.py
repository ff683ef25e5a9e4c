"""The parts of a Shoot in the order of their dependencies, and what it waits for. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sandbox.servers.apiserver import is_ready
from windowbox.models.extensions import instant

Object = Mapping[str, Any]

PATIENCE = timedelta(seconds=60)
"""A link that has waited this long counts as blocking."""


class State(StrEnum):
    """How far a link of the chain is; its value is the mark in the picture."""

    DONE = "✓"
    WAITING = "…"
    FAILED = "✗"
    NONE = "-"


@dataclass(frozen=True)
class Link:
    """One part of a Shoot, and what it waits for."""

    name: str
    state: State
    detail: str = ""
    since: datetime | None = None
    """When it entered this state, if it reports that."""
    next_step: str = ""
    """The command that shows more of it."""
    needs: tuple[str, ...] = ()
    """The names of the links that have to be done first."""


@dataclass(frozen=True)
class Observed:
    """The state of a Shoot, as API servers and the bus report it."""

    technical_id: str
    began: datetime | None
    """When it was created."""
    server: Link
    extensions: Mapping[str, Object | None]
    """By kind: Infrastructure, ControlPlane, OperatingSystemConfig, Worker."""
    managed: Sequence[Object]
    """ManagedResources."""
    membership: Mapping[str, Any] | None
    """Its cluster on the bus: `asleep`, and the state of each watch."""
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
"""Objects in the Shoot become healthy on nodes only."""


def chain(found: Observed) -> list[Link]:
    """All links, each after those that it needs."""

    def record_done(record: Object) -> bool:
        status = record.get("status") or {}
        return (status.get("lastOperation") or {}).get("state") == "Succeeded"

    def has_address(service: Object) -> bool:
        return bool(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"))

    extensions = {kind: _extension(kind, found) for kind in _KINDS}
    machines, ready = len(found.machines), sum(map(is_ready, found.nodes))
    state = State.DONE if ready >= machines else State.WAITING
    since = max(filter(None, map(_created, found.nodes)), default=None)
    names = [str(one["name"]).partition(".")[0] for c in found.webhooks for one in c.get("webhooks") or ()]
    links = [
        found.server,
        extensions["Infrastructure"],
        extensions["ControlPlane"],
        *(_managed(one, found) for one in found.managed),
        _membership(found.membership),
        extensions["OperatingSystemConfig"],
        *(_machine(one, found.technical_id) for one in found.machines),
        Link("nodes", state, f"{ready} of {machines} are Ready", since, "windowbox machine logs"),
        extensions["Worker"],
        _counted("DNSRecords", found.records, record_done, f"windowbox trace dns {found.technical_id}/NAME"),
        _counted("load balancers", found.services, has_address, "windowbox lb list", needs=("nodes",)),
        Link("webhooks", State.DONE if names else State.NONE, ", ".join(names) or "none"),
    ]
    for object in found.extensions.values():
        for one in _list(object, "conditions") if object else ():
            state = State.DONE if one.get("status") == "True" else State.WAITING
            detail = f"{one.get('status')}: {one.get('message') or ''}".rstrip(": ")
            since = instant(one.get("lastTransitionTime"))
            links.append(Link(str(one.get("type")), state, detail, since, "kubectl get workers -A -o yaml"))
    # Links without a time are taken to be as old as the Shoot.
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
    unfinished = {one.name for one in links if one.state in (State.WAITING, State.FAILED)}
    lines = []
    for link in links:
        text = f"  {link.state} {link.name:<{width}}  {link.detail}".rstrip()
        if link.name in unfinished:
            waits = [name for name in link.needs if name in unfinished]
            text += f" (waits for {', '.join(waits)})" if waits else ""
            text += f", for {_seconds(now - link.since)}" if link.since else ""
        lines.append(text)
    if found := blocker(links, now):
        assert found.since
        lines.append(f"Blocked for {_seconds(now - found.since)} by {found.name}: {found.detail}")
        lines.append(f"Next: {found.next_step}")
    return lines


def _seconds(duration: timedelta) -> str:
    return f"{max(0, int(duration.total_seconds()))} s"


def _extension(kind: str, found: Observed) -> Link:
    """An extension object, by its last operation."""
    object, needs = found.extensions[kind], _KINDS[kind]
    if kind == "ControlPlane" and _WEBHOOKS in {one["metadata"]["name"] for one in found.managed}:
        # It has handed over webhooks, and waits until they are applied.
        needs = (*needs, f"{_MANAGED} {_WEBHOOKS}")
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
    said = str(operation.get("description") or "no worker has reconciled it: is one running?")
    if _CONFIGURATION in ((status.get("lastError") or {}).get("codes") or ()):
        asked = f"annotate {kind.lower()} {name} gardener.cloud/operation=reconcile"
        step = f"correct that, then kubectl -n {found.technical_id} {asked}"
    return Link(kind, State.FAILED if state == "Error" else State.WAITING, said, since, step, needs)


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
        return Link(name, State.WAITING, "; ".join(broken) or "no watcher mirrors it yet", None, step, needs)
    return Link(name, State.DONE, f"watched: {', '.join(sorted(states))}", None, step, needs)


def _machine(object: Object, namespace: str) -> Link:
    current = (object.get("status") or {}).get("currentStatus") or {}
    name, phase = f"machine {object['metadata']['name']}", str(current.get("phase") or "new")
    step = f"windowbox trace machine {namespace}/{object['metadata']['name']}"
    if phase == "Running":
        return Link(name, State.DONE, phase, None, step)
    operation = (object.get("status") or {}).get("lastOperation") or {}
    said = f"{phase}: {operation.get('description') or 'nothing is reported yet'}"
    since = instant(operation.get("lastUpdateTime")) or _created(object)
    state = State.FAILED if phase == "Failed" else State.WAITING
    return Link(name, state, said, since, step, ("takes part",))


def _counted(
    name: str,
    objects: Sequence[Object],
    done: Callable[[Object], bool],
    step: str,
    needs: tuple[str, ...] = (),
) -> Link:
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


def _list(object: Object, name: str) -> Sequence[Mapping[str, Any]]:
    return (object.get("status") or {}).get(name) or ()


def _created(object: Object) -> datetime | None:
    return instant(object["metadata"].get("creationTimestamp"))
