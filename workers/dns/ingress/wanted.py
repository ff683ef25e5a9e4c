"""The DNSRecords that an Ingress is to have. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from windowbox.models import addresses
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS
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
