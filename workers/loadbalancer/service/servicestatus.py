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
from workers.loadbalancer.spec import fields, hostnames
from workers.loadbalancer.spec.demands import Demand

Patch = dict[str, Any]

CONDITIONS = ("LoadBalancerServing", "LoadBalancerProvisioning", "LoadBalancerDegraded")
"""The types of our conditions."""
_PREFIX = "loadbalancer.windowbox/"
"""The API wants a domain before the errors of ports, unless they are its own."""

_MOST_ENTRIES = 100
"""Entries of a status that are looked at: tenants write tens of thousands, and we two."""
_LONGEST = 4096
"""Characters of a message: a Service may have hundreds of ports with a problem each."""


@dataclass(frozen=True)
class Standing:
    """The state of a Service and its load balancer, from which the status follows."""

    demand: Demand
    addresses: Mapping[Family, str]
    problems: Mapping[str, str]
    """By `80/TCP`: why the port is not served."""
    waiting: bool
    """The load balancer is being provisioned, or a port is retried."""
    backends: bool
    """There are nodes, or Pods, that take its traffic."""
    note: str = ""
    """Why it does not serve, for people."""
    unreached: Mapping[Family, str] = field(default_factory=dict)
    """Families without a backend, though another family has one; and why."""
    hostname: str = ""
    """The name to show instead of addresses."""

    @property
    def serves(self) -> bool:
        """Whether clients can connect to one of its ports, with or without endpoints behind it."""
        return bool(self.addresses) and any(port.place not in self.problems for port in self.demand.ports)


def addresses(service: Object) -> tuple[str, ...]:
    """The addresses that its status shows."""
    found = map(_address, _entries(service))
    return tuple(dict.fromkeys(address for address in found if address is not None))


def hostname(service: Object) -> str:
    """The host name that its status shows; empty if it shows none."""
    return next((fields.text(entry.get("hostname")) for entry in _entries(service)), "")


def _address(entry: Json) -> str | None:
    return fields.address(entry.get("ip")) or hostnames.address_in(fields.text(entry.get("hostname")))


def _entries(service: Object) -> list[Json]:
    balancer = mapping(service.status.get("loadBalancer"))
    return fields.mappings(balancer.get("ingress"))[:_MOST_ENTRIES]


def patch(service: Object, standing: Standing, now: datetime, *, conditions: bool) -> Patch:
    """The status to show. The addresses appear when they serve, and stay from then on."""
    found: Patch = {}
    if standing.serves:
        errors = dict.fromkeys(standing.problems, "NotServed")
        shown = ingress(standing.demand, standing.addresses, errors, standing.hostname)
        found = {"loadBalancer": {"ingress": shown}}
    elif standing.addresses and (lost := set(addresses(service)) - set(standing.addresses.values())):
        # Another Service may have the lost addresses by now.
        kept = [entry for entry in _entries(service) if _address(entry) not in lost]
        found = {"loadBalancer": {"ingress": kept or None}}
    return found | waiting(service, standing, now, conditions=conditions)


def waiting(service: Object, standing: Standing, now: datetime, *, conditions: bool) -> Patch:
    """The status to show while the addresses stay as they are: the conditions."""
    return {"conditions": with_conditions(service, standing, now)} if conditions else {}


def remembered(service: Object, last_report: Json) -> Object:
    """The Service with our conditions as they were reported last: its status may be older."""
    ours = [one for one in fields.mappings(last_report.get("conditions")) if one.get("type") in CONDITIONS]
    if not ours:
        return service
    conditions = [*_of_others(service), *ours]
    return Object({**service.raw, "status": {**service.status, "conditions": conditions}})


def emptied(service: Object) -> Patch:
    """The status without our addresses and conditions."""
    others = _of_others(service)
    ours = len(others) < len(fields.items(service.status.get("conditions")))
    rest: Patch = {"conditions": others or None} if ours else {}
    return {"loadBalancer": {"ingress": None}} | rest


def _of_others(service: Object) -> list[Any]:
    found = fields.items(service.status.get("conditions"))
    return [one for one in found if mapping(one).get("type") not in CONDITIONS]


def shown(service: Object, patch: Json) -> bool:
    """Whether the merge patch would leave the status as it is."""

    # A missing object counts as an empty one.
    def holds(found: Json, patch: Json) -> bool:
        return all(
            holds(mapping(found.get(key)), value) if isinstance(value, Mapping) else found.get(key) == value
            for key, value in patch.items()
        )

    return holds(service.status, patch)


def ingress(
    demand: Demand, addresses: Mapping[Family, str], port_errors: Mapping[str, str], hostname: str = ""
) -> list[dict[str, Any]]:
    """`status.loadBalancer.ingress`; `port_errors` has a word for each `80/TCP` that is not served."""
    served = [(port.port, port.protocol, port_errors.get(port.place)) for port in demand.ports]
    refused = [(*one.port, one.reason) for one in demand.refusals if one.port]
    # The API wants all ports or none: the refused ones, too.
    ports = [
        {"port": port, "protocol": protocol} | ({"error": f"{_PREFIX}{error}"} if error else {})
        for port, protocol, error in [*served, *refused]
    ]
    if hostname:
        return [{"hostname": hostname, "ports": ports}]
    return [
        # Without ipMode, nodes would take a shortcut past us, and past the source ranges.
        {"ip": addresses[family], "ipMode": "Proxy", "ports": ports}
        for family in demand.families
        if family in addresses
    ]


def with_conditions(service: Object, standing: Standing, now: datetime) -> list[dict[str, Any]]:
    """All conditions of the Service: those of others unchanged, ours as `standing` has them."""
    generation = service.metadata.get("generation")
    seen = {"observedGeneration": generation} if isinstance(generation, int) and generation > 0 else {}

    def timed(new: Patch, old: Json) -> Patch:
        # The time of a condition is that of the last change of its status, not of its message.
        since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
        return {**new, "lastTransitionTime": since or spelled(now), **seen}

    report = {one["type"]: one for one in _conditions(service, standing)}
    kept: list[dict[str, Any]] = []
    for old in fields.mappings(service.status.get("conditions")):
        new = report.pop(fields.text(old.get("type")), None)
        if new is not None:
            kept.append(timed(new, old))
        elif old.get("type") not in CONDITIONS:
            kept.append(dict(old))
    return kept + [timed(new, {}) for new in report.values()]


def _conditions(service: Object, standing: Standing) -> list[Patch]:
    """Our conditions. LoadBalancerDegraded is there only if the load balancer differs from the request."""
    serving, provisioning, degraded = CONDITIONS
    demand = standing.demand
    problems = [f"{place}: {why}" for place, why in sorted(standing.problems.items())]
    note = standing.note or fields.listed(problems)
    found = [_condition(serving, *_serving(service, standing, note))]
    if standing.waiting and demand.ports:
        found.append(_condition(provisioning, True, "Provisioning", note))
    else:
        found.append(_condition(provisioning, False, "Complete", standing.note))
    unreached = [(of, why) for of, why in sorted(standing.unreached.items()) if of in standing.addresses]
    differences = {
        "PortsNotSupported": [one.note for one in demand.refusals if one.port] + problems,
        "IPFamiliesNotSupported": [
            *(f"there is no address of {of}" for of in demand.families if of not in standing.addresses),
            *(f"nothing is behind {standing.addresses[of]}: {why}" for of, why in unreached),
        ],
        "AnnotationsNotSupported": [one.note for one in demand.refusals if not one.port],
    }
    reasons = [reason for reason, notes in differences.items() if notes]
    if reasons and standing.serves:
        notes = "; ".join(note for notes in differences.values() for note in notes)
        found.append(_condition(degraded, True, reasons[0] if len(reasons) == 1 else "Multiple", notes))
    return found


def _serving(service: Object, standing: Standing, note: str) -> tuple[bool, str, str]:
    """Status, reason and message of the condition LoadBalancerServing."""
    if not standing.demand.ports:
        return False, "Unsupported", note
    if standing.demand.drained and standing.addresses:
        return False, "Drained", f"{eventmessages.DRAINED}."
    if standing.serves and standing.backends:
        reached = [of for of in sorted(standing.addresses) if of not in standing.unreached]
        where = fields.listed(standing.addresses[of] for of in reached)
        return True, "Serving", f"Clients are served at {where}."
    if standing.serves:
        return False, "Infrastructure", note or "There is no node to send traffic to."
    if not standing.addresses and addresses(service):
        said = fields.mappings(service.status.get("conditions"))
        if next((one.get("status") for one in said if one.get("type") == CONDITIONS[0]), None) == "True":
            return True, "Serving", f"Clients are served as before. {note}".strip()
    return False, "Provisioning" if standing.waiting and not note else "Infrastructure", note


def _condition(kind: str, holds: bool, reason: str, message: str) -> Patch:
    return {"type": kind, "status": str(holds), "reason": reason, "message": message[:_LONGEST]}
