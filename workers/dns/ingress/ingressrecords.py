"""The DNSRecords that an Ingress is to have. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
"""Without this annotation Gardener's admission lets nobody delete a record, not even garbage collection."""

MAX_HOSTS = 100
"""Hosts of one Ingress that get records. Each is up to two DNSRecords."""
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
    """The names in its rules, each once. A rule without one is for all names, so there is none to write."""
    rules = ingress.spec.get("rules")
    named = [rule.get("host") for rule in rules or () if isinstance(rule, Mapping)]
    return list(dict.fromkeys(str(host) for host in named if host))


def targets(ingress: Object) -> list[Target]:
    """The first address of each family, IPv4 first; the first other name only where there is no address."""
    found: dict[str, str] = {}
    for entry in _entries(ingress):
        if record_type := _record_type(entry.get("ip")):
            found.setdefault(record_type, str(entry["ip"]))
    names = [str(entry["hostname"]) for entry in _entries(ingress) if entry.get("hostname")]
    if not found and names:
        found["CNAME"] = names[0]
    return [Target(record_type, value) for record_type, value in sorted(found.items())]


def records(ingress: Object) -> list[Manifest]:
    """All DNSRecords of an Ingress that has an address and is there to stay."""
    if ingress.deleting:
        return []
    return [
        _record(ingress, host, target, second=number > 0)
        for host in hosts(ingress)
        for number, target in enumerate(targets(ingress))
        if not _leads_to_itself(host, target)
    ]


def record_name(ingress: str, host: str, *, second: bool = False) -> str:
    """The name of the record for a host; the first family has the name that it always had."""
    end = f"-{hashlib.sha256(host.encode()).hexdigest()[:8]}" + (_SECOND if second else "")
    return ingress[: _LONGEST_NAME - len(end)].rstrip("-.") + end


def ingress_name(record: str) -> str | None:
    """Whose record one of this name may be; None if it is none of an Ingress."""
    name, _, digest = record.removesuffix(_SECOND).rpartition("-")
    return name if name and len(digest) == 8 and set(digest) <= set("0123456789abcdef") else None


def with_request(record: Manifest, now: datetime) -> Manifest:
    """The same record, with the wish that it be acted upon: a new spec alone is none."""
    annotations = {
        OPERATION: "reconcile",
        TIMESTAMP: now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    metadata = record["metadata"]
    return {**record, "metadata": {**metadata, "annotations": metadata["annotations"] | annotations}}


def _record(ingress: Object, host: str, target: Target, *, second: bool) -> Manifest:
    made = manifests.manifest(
        DNSRECORDS,
        record_name(ingress.name, host, second=second),
        ingress.namespace,
        labels=LABELS,
        owners=[_owner(ingress)],
        spec={
            "type": "local",
            "name": host,
            "recordType": target.record_type,
            "values": [target.value],
            "secretRef": {"name": _SECRET},
        },
    )
    made["metadata"]["annotations"] = {CONFIRMATION: "true"}
    return made


def _owner(ingress: Object) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "name": ingress.name,
        "uid": ingress.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _entries(ingress: Object) -> Iterator[Mapping[str, Any]]:
    balancer = ingress.status.get("loadBalancer")
    entries = balancer.get("ingress") if isinstance(balancer, Mapping) else None
    yield from (entry for entry in entries or () if isinstance(entry, Mapping))


def _record_type(address: object) -> str | None:
    found = addresses.address(address) if isinstance(address, str) else None
    return None if found is None else "A" if found.version == 4 else "AAAA"


def _leads_to_itself(host: str, target: Target) -> bool:
    return target.value.rstrip(".").lower() == host


_NEVER_CHANGES = ("type", "name", "recordType")


@dataclass(frozen=True)
class Make:
    """There is none, as far as the bus tells."""

    record: Manifest


@dataclass(frozen=True)
class Correct:
    """It is not as it ought to be, or is and nobody has acted upon it."""

    record: Manifest


@dataclass(frozen=True)
class Remove:
    """Nobody asks for it, or it has to make way: what kind of record it is never changes."""

    record: Object


@dataclass(frozen=True)
class Await:
    """It cannot be made before this one is gone."""

    name: str


@dataclass(frozen=True)
class LeaveAlone:
    """Somebody else has a record of this name."""

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
    """The steps from the records that were found, by name, to those wanted. Hosts in `kept` keep theirs."""
    named = {record["metadata"]["name"]: record for record in records}
    leaving = [
        record
        for name, record in found.items()
        if ours(record, ingress) and not _stays(record, named.get(name), kept)
    ]
    actions: list[Action] = [Remove(record) for record in leaving if not record.deleting]
    for name, record in named.items():
        actions += _step(ingress, record, found.get(name), leaving)
    return actions


def ours(record: Object, ingress: Object) -> bool:
    """Whether the record was made for this Ingress, or for a former one of its name."""
    labelled = all(record.labels.get(name) == value for name, value in LABELS.items())
    owner = controller(record)
    if owner is None:
        return labelled
    same = owner.get("kind") == "Ingress" and owner.get("name") == ingress.name
    return same and (labelled or owner.get("uid") == ingress.uid)


def controller(record: Object) -> Mapping[str, Any] | None:
    """By whom the object says to be controlled."""
    return next((owner for owner in _owners(record) if owner.get("controller")), None)


def _step(
    ingress: Object, record: Manifest, found: Object | None, leaving: Iterable[Object]
) -> Iterator[Action]:
    name = record["metadata"]["name"]
    if found is not None and not ours(found, ingress):
        yield LeaveAlone(name)
    elif before := next((one for one in leaving if _conflicts(one, record)), None):
        yield Await(before.name)
    elif found is None:
        yield Make(record)
    elif _differs(found, record) or _edited_by_hand(found):
        yield Correct(record)


def _stays(found: Object, record: Manifest | None, kept: Collection[str]) -> bool:
    if found.deleting:
        return False
    if record is None:
        return found.spec.get("name") in kept
    return all(found.spec.get(name) == record["spec"][name] for name in _NEVER_CHANGES)


def _conflicts(leaving: Object, record: Manifest) -> bool:
    """Whether one has to be gone before the other comes: a CNAME stands alone."""
    if leaving.name == record["metadata"]["name"]:
        return True
    types = {leaving.spec.get("recordType"), record["spec"]["recordType"]}
    return leaving.spec.get("name") == record["spec"]["name"] and "CNAME" in types and len(types) > 1


def _differs(found: Object, record: Manifest) -> bool:
    metadata = dict(record["metadata"])
    [owner] = metadata.pop("ownerReferences")  # others may have added theirs
    return owner not in _owners(found) or manifests.differs(
        DNSRECORDS, found, {**record, "metadata": metadata}
    )


def _edited_by_hand(found: Object) -> bool:
    """Whether the record has changed and nobody has been asked to act: somebody has edited it by hand."""
    requested = runpredicates.wants_run(found) or runpredicates.overdue(found)
    return not requested and found.status.get("observedGeneration") != found.generation


def _owners(record: Object) -> list[Mapping[str, Any]]:
    owners = record.metadata.get("ownerReferences")
    return [owner for owner in owners or () if isinstance(owner, Mapping)]
