"""The desired DNSRecords of an Ingress, and the plan from those that exist. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from windowbox.models import addresses
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS
from workers.core.lifecycle import runpredicates
from workers.core.owned import manifests
from workers.core.owned.manifests import Manifest

LABELS = {"origin": "provider-local", "for": "ingress"}
CONFIRMATION = "confirmation.gardener.cloud/deletion"
"""Without this annotation Gardener's admission refuses deletions, even by the garbage collector."""

MAX_HOSTS = 100
"""Hosts of one Ingress that get records. Each is up to two DNSRecords."""
_MOST_ENTRIES = 100
"""Entries of a status that are looked at: tenants write tens of thousands."""
_SECRET = "provider-local-is-awesome"
_SECOND = "-ipv6"
_LONGEST_NAME = 253


class Target(NamedTuple):
    """Where a name leads to, in one family."""

    record_type: str
    value: str


def hosts(ingress: Object) -> list[str]:
    """The hosts that get records: the first ones in its rules."""
    return named_hosts(ingress)[:MAX_HOSTS]


def named_hosts(ingress: Object) -> list[str]:
    """The hosts in its rules, each once. A rule without a host matches all names, so it needs no record."""
    rules = ingress.spec.get("rules")
    named = [rule.get("host") for rule in rules or () if isinstance(rule, Mapping)]
    return list(dict.fromkeys(str(host) for host in named if host))


def targets(ingress: Object) -> list[Target]:
    """The first address of each family, IPv4 first; the first other name only where there is no address."""
    found: dict[str, str] = {}
    for entry in _entries(ingress):
        ip = entry.get("ip")
        if isinstance(ip, str) and (address := addresses.address(ip)):
            found.setdefault("A" if address.version == 4 else "AAAA", ip)
    names = [str(entry["hostname"]) for entry in _entries(ingress) if entry.get("hostname")]
    if not found and names:
        found["CNAME"] = names[0]
    return [Target(record_type, value) for record_type, value in sorted(found.items())]


def records(ingress: Object) -> list[Manifest]:
    """The DNSRecords of an Ingress; none while it has no address or is being deleted."""
    if ingress.deleting:
        return []
    owner = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "name": ingress.name,
        "uid": ingress.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made, wanted = [], targets(ingress)
    for host in hosts(ingress):
        for number, target in enumerate(wanted):
            if target.value.rstrip(".").lower() == host:
                continue  # a CNAME to itself
            name = record_name(ingress.name, host, second=number > 0)
            spec = {
                "type": "local",
                "name": host,
                "recordType": target.record_type,
                "values": [target.value],
                "secretRef": {"name": _SECRET},
            }
            record = manifests.manifest(
                DNSRECORDS, name, ingress.namespace, labels=LABELS, owners=[owner], spec=spec
            )
            record["metadata"]["annotations"] = {CONFIRMATION: "true"}
            made.append(record)
    return made


def record_name(ingress: str, host: str, *, second: bool = False) -> str:
    """The name of the record for a host. The first family has no suffix, as before dual stack."""
    end = f"-{hashlib.sha256(host.encode()).hexdigest()[:8]}" + (_SECOND if second else "")
    return ingress[: _LONGEST_NAME - len(end)].rstrip("-.") + end


def ingress_name(record: str) -> str | None:
    """The Ingress that a record of this name may belong to; None for other names."""
    name, _, digest = record.removesuffix(_SECOND).rpartition("-")
    return name if name and len(digest) == 8 and set(digest) <= set("0123456789abcdef") else None


def with_request(record: Manifest, now: datetime) -> Manifest:
    """The record with the operation annotation: a new spec alone requests no run."""
    annotations = {
        OPERATION: "reconcile",
        TIMESTAMP: now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    metadata = record["metadata"]
    return {**record, "metadata": {**metadata, "annotations": metadata["annotations"] | annotations}}


def _entries(ingress: Object) -> Iterator[Mapping[str, Any]]:
    balancer = ingress.status.get("loadBalancer")
    entries = balancer.get("ingress") if isinstance(balancer, Mapping) else None
    if isinstance(entries, list):
        yield from (entry for entry in entries[:_MOST_ENTRIES] if isinstance(entry, Mapping))


_NEVER_CHANGES = ("type", "name", "recordType")


@dataclass(frozen=True)
class Make:
    """The bus knows no record of this name."""

    record: Manifest


@dataclass(frozen=True)
class Correct:
    """The record differs, or its latest generation was never reconciled."""

    record: Manifest


@dataclass(frozen=True)
class Remove:
    """The record is not desired, or has to be replaced: its type and name are immutable."""

    record: Object


@dataclass(frozen=True)
class Await:
    """The desired record conflicts with this one, which is being deleted."""

    name: str


@dataclass(frozen=True)
class LeaveAlone:
    """Another owner has a record of this name."""

    name: str


Action = Make | Correct | Remove | Await | LeaveAlone


def written(action: Action) -> str:
    """The name of the record that an action writes; empty where it writes none."""
    match action:
        case Make(record) | Correct(record):
            return str(record["metadata"]["name"])
        case Remove(record):
            return record.name
        case Await() | LeaveAlone():
            return ""


def plan(
    ingress: Object,
    records: Sequence[Manifest],
    found: Mapping[str, Object],
    kept: Collection[str] = (),
) -> list[Action]:
    """The actions from the records found, by name, to the desired ones. Hosts in `kept` keep theirs."""
    named = {record["metadata"]["name"]: record for record in records}

    def stays(record: Object) -> bool:
        if record.deleting:
            return False
        if (wanted := named.get(record.name)) is None:
            return record.spec.get("name") in kept
        return all(record.spec.get(name) == wanted["spec"][name] for name in _NEVER_CHANGES)

    leaving = [record for record in found.values() if ours(record, ingress) and not stays(record)]
    actions: list[Action] = [Remove(record) for record in leaving if not record.deleting]
    for name, record in named.items():
        old = found.get(name)
        if old is not None and not ours(old, ingress):
            actions.append(LeaveAlone(name))
        elif before := next((one for one in leaving if _conflicts(one, record)), None):
            actions.append(Await(before.name))
        elif old is None:
            actions.append(Make(record))
        elif _differs(old, record):
            actions.append(Correct(record))
    return actions


def ours(record: Object, ingress: Object) -> bool:
    """Whether the record was created for this Ingress, or for a former one of its name."""
    labelled = all(record.labels.get(name) == value for name, value in LABELS.items())
    owner = controller(record)
    if owner is None:
        return labelled
    same = owner.get("kind") == "Ingress" and owner.get("name") == ingress.name
    return same and (labelled or owner.get("uid") == ingress.uid)


def controller(record: Object) -> Mapping[str, Any] | None:
    """The owner reference of the controller, if any."""
    return next((owner for owner in _owners(record) if owner.get("controller")), None)


def _conflicts(leaving: Object, record: Manifest) -> bool:
    """Whether `leaving` has to be gone before `record` is created: a CNAME excludes other types."""
    if leaving.name == record["metadata"]["name"]:
        return True
    types = {leaving.spec.get("recordType"), record["spec"]["recordType"]}
    return leaving.spec.get("name") == record["spec"]["name"] and "CNAME" in types and len(types) > 1


def _differs(found: Object, record: Manifest) -> bool:
    """Whether the record differs from the desired one, or its spec was edited without a request for a run."""
    metadata = dict(record["metadata"])
    [owner] = metadata.pop("ownerReferences")  # others may have added theirs
    wanted = {**record, "metadata": metadata}
    if owner not in _owners(found) or manifests.differs(DNSRECORDS, found, wanted):
        return True
    requested = runpredicates.wants_run(found) or runpredicates.overdue(found)
    return not requested and found.status.get("observedGeneration") != found.generation


def _owners(record: Object) -> list[Mapping[str, Any]]:
    owners = record.metadata.get("ownerReferences")
    return [owner for owner in owners or () if isinstance(owner, Mapping)]
