"""The status of a Service: ingress and conditions. Rules LB-7-* (docs/contract-coverage.md), and KEP-4631."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windowbox.models.extensions import spelled
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Json, Object, mapping
from workers.loadbalancer.service import eventmessages
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.demands import Demand

Patch = dict[str, Any]

CONDITIONS = ("LoadBalancerServing", "LoadBalancerProvisioning", "LoadBalancerDegraded")
"""The types of our conditions."""
_PREFIX = "loadbalancer.windowbox/"
"""The API wants a domain before the errors of ports, unless they are its own."""

_LONGEST = 4096
"""Of a message: a status is no place for words about each of hundreds of ports."""


@dataclass(frozen=True)
class Standing:
    """How a Service and its load balancer stand."""

    demand: Demand
    addresses: Mapping[Family, str]
    problems: Mapping[str, str]
    """By `80/TCP`: why the port is not served."""
    waiting: bool
    """Something is still under way, or is tried again."""
    backends: bool
    """There are nodes, or Pods, to send traffic to."""
    note: str = ""
    """Why it does not serve, in plain words."""
    unreached: Mapping[Family, str] = field(default_factory=dict)
    """Families of which there are none, though there are of another; and why."""

    @property
    def serves(self) -> bool:
        """Whether clients can connect to one of its ports, with or without endpoints behind it."""
        return bool(self.addresses) and any(port.place not in self.problems for port in self.demand.ports)


def addresses(service: Object) -> tuple[str, ...]:
    """The addresses that its status shows."""
    balancer = mapping(service.status.get("loadBalancer"))
    found = (fields.address(entry.get("ip")) for entry in fields.mappings(balancer.get("ingress")))
    return tuple(dict.fromkeys(address for address in found if address is not None))


def patch(service: Object, standing: Standing, now: datetime, *, conditions: bool) -> Patch:
    """The status to show. The addresses appear when they serve, and stay from then on."""
    errors = dict.fromkeys(standing.problems, "NotServed")
    shown = {"loadBalancer": {"ingress": ingress(standing.demand, standing.addresses, errors)}}
    return (shown if standing.serves else _without_lost(service, standing)) | waiting(
        service, standing, now, conditions=conditions
    )


def _without_lost(service: Object, standing: Standing) -> Patch:
    """Without addresses that are the Service's no longer: another may have them now."""
    lost = set(addresses(service)) - set(standing.addresses.values())
    if not lost or not standing.addresses:
        return {}
    entries = fields.mappings(mapping(service.status.get("loadBalancer")).get("ingress"))
    kept = [entry for entry in entries if fields.address(entry.get("ip")) not in lost]
    return {"loadBalancer": {"ingress": kept or None}}


def waiting(service: Object, standing: Standing, now: datetime, *, conditions: bool) -> Patch:
    """The same, with the addresses left as they are."""
    return {"conditions": with_conditions(service, standing, now)} if conditions else {}


def remembered(service: Object, last_report: Json) -> Object:
    """The Service with our conditions as they were reported last: what it shows may be older."""
    ours = [one for one in fields.mappings(last_report.get("conditions")) if one.get("type") in CONDITIONS]
    found = fields.items(service.status.get("conditions"))
    others = [one for one in found if mapping(one).get("type") not in CONDITIONS]
    return (
        Object({**service.raw, "status": {**service.status, "conditions": [*others, *ours]}})
        if ours
        else service
    )


def emptied(service: Object) -> Patch:
    """Nothing of ours is left."""
    found = fields.items(service.status.get("conditions"))
    others = [one for one in found if mapping(one).get("type") not in CONDITIONS]
    rest: Patch = {"conditions": others or None} if len(others) < len(found) else {}
    return {"loadBalancer": {"ingress": None}} | rest


def shown(service: Object, patch: Json) -> bool:
    """Whether its status is as `patch` would make it."""
    return _holds(service.status, patch)


def ingress(
    demand: Demand, addresses: Mapping[Family, str], port_errors: Mapping[str, str]
) -> list[dict[str, Any]]:
    """`status.loadBalancer.ingress`; `port_errors` has a word for each `80/TCP` that is not served.

    Once ports are shown, all of them have to be: the refused ones, too.
    """
    served = [(port.port, port.protocol, port_errors.get(port.place)) for port in demand.ports]
    refused = [(*one.port, one.reason) for one in demand.refusals if one.port]
    ports = [
        {"port": port, "protocol": protocol} | ({"error": f"{_PREFIX}{error}"} if error else {})
        for port, protocol, error in [*served, *refused]
    ]
    return [
        # Without ipMode, nodes would take a shortcut past us, and past the source ranges.
        {"ip": addresses[family], "ipMode": "Proxy", "ports": ports}
        for family in demand.families
        if family in addresses
    ]


def with_conditions(service: Object, standing: Standing, now: datetime) -> list[dict[str, Any]]:
    """The Service's conditions: those of others as they are, ours renewed.

    A condition's time is that of the last change of its status, not of its words.
    """
    before = [dict(one) for one in fields.mappings(service.status.get("conditions"))]
    report = {
        condition["type"]: condition
        for condition in (_serving(service, standing), _provisioning(standing), _degraded(standing))
        if condition is not None
    }
    generation = service.metadata.get("generation")
    kept: list[dict[str, Any]] = []
    for old in before:
        new = report.pop(fields.text(old.get("type")), None)
        if new is not None:
            kept.append(_timed(new, old, generation, now))
        elif old.get("type") not in CONDITIONS:
            kept.append(old)
    return kept + [_timed(new, {}, generation, now) for new in report.values()]


def _serving(service: Object, standing: Standing) -> Patch:
    kind = "LoadBalancerServing"
    note = standing.note or fields.listed(_problems(standing))
    if not standing.demand.ports:
        return _condition(kind, False, "Unsupported", note)
    if standing.demand.drained and standing.addresses:
        return _condition(kind, False, "Drained", f"{eventmessages.DRAINED}.")
    if standing.serves and standing.backends:
        where = fields.listed(
            standing.addresses[one] for one in sorted(standing.addresses) if one not in standing.unreached
        )
        return _condition(kind, True, "Serving", f"Clients are served at {where}.")
    if standing.serves:
        return _condition(kind, False, "Infrastructure", note or "There is no node to send traffic to.")
    if not standing.addresses and _said(service, kind) == "True" and addresses(service):
        return _condition(kind, True, "Serving", f"Clients are served as before. {note}".strip())
    under_way = standing.waiting and not note
    return _condition(kind, False, "Provisioning" if under_way else "Infrastructure", note)


def _provisioning(standing: Standing) -> Patch:
    kind = "LoadBalancerProvisioning"
    if standing.waiting and standing.demand.ports:
        note = standing.note or fields.listed(_problems(standing))
        return _condition(kind, True, "Provisioning", note)
    return _condition(kind, False, "Complete", standing.note)


def _degraded(standing: Standing) -> Patch | None:
    """What is served otherwise than asked for; None where nothing is, or where nothing is served at all."""
    demand = standing.demand
    lacking = [family for family in demand.families if family not in standing.addresses]
    found = {
        "PortsNotSupported": [one.note for one in demand.refusals if one.port] + _problems(standing),
        "IPFamiliesNotSupported": [
            *(f"there is no address of {family}" for family in lacking),
            *(f"nobody is behind {standing.addresses[of]}: {why}" for of, why in _unreached(standing)),
        ],
        "AnnotationsNotSupported": [one.note for one in demand.refusals if not one.port],
    }
    reasons = [reason for reason, notes in found.items() if notes]
    if not reasons or not standing.serves:
        return None
    notes = "; ".join(note for notes in found.values() for note in notes)
    return _condition("LoadBalancerDegraded", True, reasons[0] if len(reasons) == 1 else "Multiple", notes)


def _unreached(standing: Standing) -> list[tuple[Family, str]]:
    return [(of, why) for of, why in sorted(standing.unreached.items()) if of in standing.addresses]


def _problems(standing: Standing) -> list[str]:
    return [f"{place}: {why}" for place, why in sorted(standing.problems.items())]


def _said(service: Object, kind: str) -> object:
    conditions = fields.mappings(service.status.get("conditions"))
    return next((one.get("status") for one in conditions if one.get("type") == kind), None)


def _condition(kind: str, holds: bool, reason: str, message: str) -> Patch:
    return {"type": kind, "status": str(holds), "reason": reason, "message": message[:_LONGEST]}


def _timed(new: Patch, old: Json, generation: object, now: datetime) -> Patch:
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    seen = {"observedGeneration": generation} if isinstance(generation, int) and generation > 0 else {}
    return {**new, "lastTransitionTime": since or spelled(now), **seen}


def _holds(found: Json, patch: Json) -> bool:
    """Whether the merge patch would change nothing, but for empty objects."""
    for key, value in patch.items():
        if isinstance(value, Mapping):
            if not _holds(mapping(found.get(key)), value):
                return False
        elif found.get(key) != value:
            return False
    return True
