"""The inventories of emulated clouds, as commands read and change them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from bus import streams, subjects
from bus.messages import Announcement, Reason, Wish
from bus.transport import buckets, consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, Full, WrongSequence
from bus.workqueue.queue import Queue
from clouds import table
from clouds.frame import inventory
from clouds.frame.cloud import Cloud
from clouds.frame.inventory import CloudObject
from clouds.frame.operator import faults
from clouds.frame.operator.faults import SetFault
from windowbox.errors import Malformed, Missing, Refused
from windowbox.kinds import POOLS
from windowbox.models.objects import mapping

_ATTEMPTS = 20


class Owned(NamedTuple):
    """An object, its account, and the Shoot that it was made for; empty: it exists without one."""

    account: str
    shoot: str
    object: CloudObject

    def as_json(self) -> dict[str, Any]:
        found = self.object
        shown = {"kind": found.kind, "id": found.id, "name": found.name, "properties": found.properties}
        users = {"usedBy": found.used_by, "shared": found.shared}
        return {"account": self.account, "shoot": self.shoot, **shown, **users}


@dataclass
class Account:
    """What the inventory has of one account."""

    existing: list[CloudObject] = field(default_factory=list)
    shoots: dict[str, list[CloudObject]] = field(default_factory=dict)
    """The objects of each Shoot, by its technical id."""
    faults: list[SetFault] = field(default_factory=list)
    """Those that have not ended."""

    def as_json(self, name: str) -> dict[str, Any]:
        shoots = {shoot: len(objects) for shoot, objects in sorted(self.shoots.items())}
        set_ = [{key: value for key, value in asdict(one).items() if value} for one in self.faults]
        return {"account": name, "existing": len(self.existing), "shoots": shoots, "faults": set_}


async def accounts(bus: Bus) -> dict[str, Account]:
    """Everything that the inventory has, by account."""
    found: defaultdict[str, Account] = defaultdict(Account)
    bucket = streams.CLOUDS
    async for stored in consumers.snapshot(bus, f"KV_{bucket}", [subjects.entry(bucket, ">")]):
        if buckets.gone(stored):
            continue
        match subjects.without(f"$KV.{bucket}", stored.subject).split("."):
            case ["existing", account, *_]:
                found[account].existing += inventory.decoded([json.loads(stored.data)])
            case ["shoots", shoot]:
                content = mapping(json.loads(stored.data))
                found[str(content.get("account"))].shoots[shoot] = inventory.decoded(content.get("objects"))
            case ["faults", account]:
                found[account].faults = faults.active(faults.decoded(stored.data))
    return dict(sorted(found.items()))


def objects(found: dict[str, Account], of: str = "") -> Iterator[Owned]:
    """All objects, or those of an account or of a Shoot."""
    for name, account in found.items():
        if of in ("", name):
            yield from (Owned(name, "", one) for one in sorted(account.existing, key=_order))
        for shoot, made in sorted(account.shoots.items()):
            if of in ("", name, shoot):
                yield from (Owned(name, shoot, one) for one in made)


def _order(one: CloudObject) -> tuple[str, str]:
    return one.kind, one.id


def cloud_of(account: str) -> Cloud:
    """The cloud of an account. Malformed if there can be no account of this name."""
    type_, _, number = account.rpartition("-")
    if type_ not in table.TYPES or not number.isdecimal() or len(number) != 12:
        raise Malformed(
            f"{account!r:.80} is no account: accounts have names such as {table.TYPES[0]}-012345678901; "
            "`windowbox cloud account FILE` computes that of a Secret"
        )
    return table.cloud(type_)


async def add(bus: Bus, account: str, one: CloudObject) -> None:
    """Have this object exist, or change it; the Shoot that uses it keeps it."""
    [content] = inventory.encoded([one])
    key, known = inventory.key("existing", account, one.kind, one.id), await accounts(bus)
    there = known.get(account, Account())
    makers = [shoot for shoot, made in there.shoots.items() if _identity(one) in map(_identity, made)]
    if makers and not one.shared:
        raise Refused(
            f"{one.kind} {one.id!r:.80} belongs to Shoot {makers[0]}: with --shared other Shoots may name it"
        )
    is_new = _identity(one) not in map(_identity, there.existing)
    if is_new and len(there.existing) >= inventory.MOST_OBJECTS:
        raise Refused(
            f"{account} has {inventory.MOST_OBJECTS} existing objects, and may not have more: "
            "remove some with `windowbox cloud remove`"
        )

    def changed(value: bytes | None) -> bytes | None:
        before = inventory.decoded([json.loads(value)])[0] if value else one
        users = {"used_by": before.used_by} if before.used_by and not one.shared else {}
        return json.dumps(content | users, sort_keys=True).encode()

    await _change(bus, key, changed)


async def remove(bus: Bus, account: str, kind: str, id_: str) -> None:
    """Have an existing object exist no longer."""

    def changed(value: bytes | None) -> bytes | None:
        if value is None:
            raise Missing(
                f"{account} has no existing {kind} {id_!r:.80}: see `windowbox cloud list {account}`"
            )
        if user := inventory.decoded([json.loads(value)])[0].used_by:
            raise Refused(f"{kind} {id_!r:.80} is used by {user}: have that use another first")
        return None

    await _change(bus, inventory.key("existing", account, kind, id_), changed)


async def fail(bus: Bus, account: str, fault: SetFault) -> None:
    """Set a fault, in place of one that hits the same calls."""
    same = replace(fault, times=0, until="")

    def changed(value: bytes | None) -> bytes | None:
        known = [one for one in _faults(value) if replace(one, times=0, until="") != same]
        if len(known) >= faults.MOST:
            raise Refused(
                f"{account} has {faults.MOST} faults: end some with `windowbox cloud heal {account}`"
            )
        return faults.encoded([*known, fault])

    await _change(bus, inventory.key("faults", account), changed)


async def retry(bus: Bus) -> int:
    """Reconcile the objects that a fault has failed now, and not after their delays. Returns how many."""
    failed: list[tuple[str, str]] = []
    for pool, row in POOLS.items():
        kinds = [subjects.seen_kind("*", row.resource.id)]
        async for stored in consumers.snapshot(bus, streams.OBJECTS, kinds):
            seen = Announcement(stored)
            if not (seen.gone or seen.omitted) and faults.PLAYED.encode() in stored.data:
                failed.append((pool, subjects.without("object", stored.subject)))
    for pool, key in failed:
        await Queue(bus, pool).wish(key, Wish(reason=Reason.RETRY).insisting())
    return len(failed)


async def heal(bus: Bus, account: str, fault: str | None) -> int:
    """End the faults of an account, or those of this name. Returns how many there were."""
    ended = 0

    def changed(value: bytes | None) -> bytes | None:
        nonlocal ended
        known = _faults(value)
        left = [one for one in known if fault not in (None, one.fault)]
        ended = len(known) - len(left)
        return faults.encoded(left)

    await _change(bus, inventory.key("faults", account), changed)
    return ended


def _faults(value: bytes | None) -> list[SetFault]:
    return faults.active(faults.decoded(value))


def _identity(one: CloudObject) -> tuple[str, str]:
    return one.kind, one.id


async def _change(bus: Bus, key: str, changed: Callable[[bytes | None], bytes | None]) -> None:
    """Write what `changed` makes of an entry; None removes it."""
    bucket = Bucket(bus, streams.CLOUDS)
    for attempt in range(_ATTEMPTS):
        entry = await bucket.get(key)
        value = changed(entry.value)
        if value == entry.value:
            return
        try:
            if value is None:
                await bucket.delete(key, entry.sequence)
            else:
                await bucket.put(key, value, entry.sequence)
            return
        except WrongSequence:
            if attempt + 1 == _ATTEMPTS:
                raise
        except Full as error:
            raise Refused(
                "the inventory of all clouds is full: remove objects with `windowbox cloud remove`, "
                "or delete Shoots"
            ) from error
