"""The difference between the desired and the existing DNSRecords of an Ingress. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS
from workers.core.lifecycle import predicates
from workers.core.owned import manifests
from workers.core.owned.manifests import Manifest
from workers.dns.ingress import wanted

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
    labelled = all(record.labels.get(name) == value for name, value in wanted.LABELS.items())
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
    requested = predicates.wants_run(found) or predicates.overdue(found)
    return not requested and found.status.get("observedGeneration") != found.generation


def _owners(record: Object) -> list[Mapping[str, Any]]:
    owners = record.metadata.get("ownerReferences")
    return [owner for owner in owners or () if isinstance(owner, Mapping)]
