"""The inventories of emulated clouds, in the bucket `clouds`: read and written by runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bus import streams, subjects
from bus.clusters.clusters import Clusters
from bus.transport import buckets, consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, Full
from clouds.frame import inventory
from clouds.frame.cloud import Cloud
from clouds.frame.inventory import CloudObject, Found, Reference
from clouds.frame.operator.faults import QUOTA
from windowbox.clients.kubernetes.apiresponses import UNAUTHENTICATED
from windowbox.errors import Conflict, Malformed, Missing, PermanentError, TransientError
from windowbox.models import fielderrors
from windowbox.models.objects import from_base64, mapping
from windowbox.models.refs import SECRETS, ObjectRef
from workers.core.cloudfaults import CloudFaults
from workers.core.lifecycle.actuators import Run
from workers.core.recorder import Calls, Unrecorded

Json = dict[str, Any]


class Account(NamedTuple):
    """An account of a cloud, as the inventory names it."""

    name: str
    shown: Mapping[str, str]
    """What ids and statuses of the cloud show of its credentials."""


class Maker(NamedTuple):
    """The Infrastructure that has made the objects of a Shoot."""

    ref: ObjectRef
    uid: str


class Estate(NamedTuple):
    """What the inventory has of one Shoot."""

    objects: list[CloudObject]
    uses: list[tuple[str, str]]
    """Kinds and ids of existing objects that it may have claimed."""
    account: str
    made_by: Maker | None = None
    """None while no seed has the Shoot."""
    pools: tuple[str, ...] = ()
    """The address pools of its machines."""


class CloudAccounts:
    """Accounts of clouds. All requests are recorded, and none has anything of a Secret."""

    def __init__(self, bus: Bus, clusters: Clusters) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, streams.CLOUDS)
        self._clusters = clusters
        self._faults = CloudFaults(bus)

    async def check(self, run: Run, account: str, part: str, owner: str = "") -> None:
        """Make a call to the cloud: an error of the cloud if a fault is set for it (`CloudFaults.check`).

        Checks for drift make none: nobody would see that they fail.
        """
        if not run.drift:
            owner = owner or (run.shoot.technical_id if run.shoot else "")
            await self._faults.check(run.recorder, account, part, owner)

    async def account(
        self, run: Run, cloud: Cloud, namespace: str, name: str, keys: Mapping[str, str] | None = None
    ) -> Account:
        """The account of the credentials in a Secret. An error if they are none.

        `keys` are further names of the Secret's keys, each with the name that the cloud checks.
        """

        async def read() -> Json:
            kube = await self._clusters.get(run.ref.cluster)
            where = f"Secret {namespace}/{name}"
            try:
                found = await kube.get(SECRETS, namespace, name)
            except Missing as error:
                raise PermanentError(
                    f"{where} does not exist: create it", codes=(UNAUTHENTICATED,)
                ) from error
            try:
                data = {key: from_base64(one or "") for key, one in mapping(found.raw.get("data")).items()}
            except (TypeError, ValueError) as error:
                raise Malformed(f"{where} holds data that is not base64: encode it") from error
            data = {own: data[key] for key, own in (keys or {}).items() if key in data} | data
            if reason := cloud.secret(data, None):
                raise PermanentError(f"{where}: {reason}", codes=(UNAUTHENTICATED,))
            account = cloud.account(data)
            return {
                "name": inventory.account_name(cloud.type, account.identity),
                "shown": dict(account.shown),
            }

        found = await run.recorder.call("account", {"secret": f"{namespace}/{name}"}, read)
        return Account(str(found["name"]), found["shown"])

    async def estate(self, run: Run, owner: str) -> Estate | None:
        """What the inventory has of a Shoot; None if nothing."""
        found = await self._read(run.recorder, _of_shoot(owner))
        return None if found is None else _estate(found)

    async def existing(self, run: Run, account: str, references: Collection[Reference]) -> Found:
        """The existing objects that a Shoot refers to. Malformed if it names too many, or one twice."""
        if len(references) > inventory.MOST_REFERENCES:
            raise Malformed(
                f"spec.providerConfig names {len(references)} existing objects, more than "
                f"{inventory.MOST_REFERENCES}: name fewer"
            )
        found, named = {}, set[tuple[str, str]]()
        for one in references:
            if one.exclusive and (one.kind, one.id) in named:
                raise Malformed(fielderrors.duplicate(one.path, one.id))
            named.add((one.kind, one.id))
            if content := await self._read(run.recorder, _existing(account, one.kind, one.id)):
                found[one.kind, one.id] = inventory.decoded([content])[0]
        return found

    async def keep(
        self,
        run: Run,
        account: str,
        owner: str,
        objects: Iterable[CloudObject],
        uses: Iterable[Reference],
        pools: Iterable[str] = (),
    ) -> None:
        """Make these the objects of a Shoot, and the existing ones that it uses alone its own."""
        wanted = [(one.kind, one.id) for one in uses if one.exclusive]
        before = await self.estate(run, owner)
        former = before.uses if before else []
        if before and before.account != account:  # the credentials are others
            for kind, id_ in former:
                await self._release(run.recorder, before.account, kind, id_, owner)
            former = []
        left = [one for one in former if one not in wanted]
        content = {
            "account": account,
            "objects": inventory.encoded(objects),
            "made_by": [subjects.key(run.ref), run.object.uid],
            "pools": list(pools),
        }
        # What is claimed is listed before, and what is listed is released: a run may end at any point.
        await self._write(run.recorder, _of_shoot(owner), content | {"uses": [*wanted, *left]})
        for kind, id_ in wanted:
            await self._claim(run.recorder, account, kind, id_, owner)
        for kind, id_ in left:
            await self._release(run.recorder, account, kind, id_, owner)
        if left:
            await self._write(run.recorder, _of_shoot(owner), content | {"uses": wanted})

    async def drop(self, run: Run, owner: str) -> None:
        """Remove all objects of a Shoot, and release those that it used."""
        before = await self.estate(run, owner)
        if before is None:
            return
        await self.check(run, before.account, "infrastructure")
        for kind, id_ in before.uses:
            await self._release(run.recorder, before.account, kind, id_, owner)
        await self._write(run.recorder, _of_shoot(owner), None)

    async def leave(self, run: Run, owner: str) -> None:
        """Keep the objects of a Shoot that another seed takes over."""
        if (found := await self._read(run.recorder, _of_shoot(owner))) is not None:
            await self._write(run.recorder, _of_shoot(owner), found | {"made_by": None})

    async def estates(self) -> AsyncIterator[tuple[str, Estate]]:
        """What the inventory has of each Shoot, by its technical id."""
        prefix = subjects.entry(streams.CLOUDS, "shoots.")
        async for stored in consumers.snapshot(self._bus, f"KV_{streams.CLOUDS}", [f"{prefix}*"]):
            if not buckets.gone(stored):
                yield stored.subject.removeprefix(prefix), _estate(json.loads(stored.data))

    async def claims(self) -> AsyncIterator[tuple[str, CloudObject]]:
        """The existing objects that somebody uses alone, each with its account."""
        prefix = subjects.entry(streams.CLOUDS, "existing.")
        async for stored in consumers.snapshot(self._bus, f"KV_{streams.CLOUDS}", [f"{prefix}>"]):
            for one in inventory.decoded([] if buckets.gone(stored) else [json.loads(stored.data)]):
                if one.used_by:
                    yield stored.subject.removeprefix(prefix).partition(".")[0], one

    async def free(self, account: str, one: CloudObject) -> None:
        """End the use of an object, whose user is gone."""
        await self._release(Unrecorded(), account, one.kind, one.id, one.used_by)

    async def clean_up(self, owner: str, made_by: Maker) -> None:
        """Drop what a vanished Infrastructure has left. Conflict if another one takes it over meanwhile."""
        entry = await self._bucket.get(_of_shoot(owner))
        found = _estate(json.loads(entry.value)) if entry.value else None
        if found and found.made_by == made_by:
            for kind, id_ in found.uses:
                await self._release(Unrecorded(), found.account, kind, id_, owner)
            await self._bucket.delete(_of_shoot(owner), entry.sequence)

    async def take(self, run: Run, account: str, kind: str, id_: str, user: str) -> bool:
        """Make an existing object that of this user alone. False if it is another's, or does not exist."""
        one = (await self.existing(run, account, [Reference(kind, id_, "")])).get((kind, id_))
        if one is None or (not one.shared and one.used_by not in ("", user)):
            return False
        await self._claim(run.recorder, account, kind, id_, user)
        return True

    async def release(self, run: Run, account: str, kind: str, id_: str, user: str) -> None:
        """End the use of an existing object by this user."""
        await self._release(run.recorder, account, kind, id_, user)

    async def _claim(self, calls: Calls, account: str, kind: str, id_: str, owner: str) -> None:
        def user(found: CloudObject | None) -> str:
            if found is None or (not found.shared and found.used_by not in ("", owner)):
                raise Conflict(f"{kind} {id_!r:.80} was claimed or removed meanwhile")
            return "" if found.shared else owner

        await self._use(calls, _existing(account, kind, id_), owner, user)

    async def _release(self, calls: Calls, account: str, kind: str, id_: str, owner: str) -> None:
        def user(found: CloudObject | None) -> str:
            return "" if found is None or found.used_by == owner else found.used_by

        await self._use(calls, _existing(account, kind, id_), "", user)

    async def _use(self, calls: Calls, key: str, by: str, user: Callable[[CloudObject | None], str]) -> None:
        """Write who uses an existing object alone. Conflict if somebody else writes it at the same time."""

        async def use() -> bool:
            entry = await self._bucket.get(key)
            found = inventory.decoded([json.loads(entry.value)])[0] if entry.value else None
            used_by = user(found)
            if found is None or found.used_by == used_by:
                return False
            content = inventory.encoded([replace(found, used_by=used_by)])[0]
            await self._bucket.put(key, json.dumps(content, sort_keys=True).encode(), entry.sequence)
            return True

        await calls.call("inventory", {"use": key, "by": by}, use, effect=True)

    async def _read(self, calls: Calls, key: str) -> Json | None:
        async def read() -> Json | None:
            value = (await self._bucket.get(key)).value
            return None if value is None else mapping(json.loads(value))  # type: ignore[return-value]

        found: Json | None = await calls.call("inventory", {"read": key}, read)
        return found

    async def _write(self, calls: Calls, key: str, content: Json | None) -> None:
        """Write an entry; None removes it. Nothing is written if it is there already."""

        async def write() -> bool:
            entry = await self._bucket.get(key)
            value = None if content is None else json.dumps(content, sort_keys=True).encode()
            if entry.value == value:
                return False
            if value is None:
                await self._bucket.delete(key, entry.sequence)
                return True
            try:
                await self._bucket.put(key, value, entry.sequence)
            except Full as error:
                raise TransientError(
                    "the inventory of all clouds is full: an operator has to remove objects with `windowbox "
                    "cloud remove`, or Shoots",
                    codes=QUOTA,
                ) from error
            return True

        await calls.call("inventory", {"write": key, "content": content}, write, effect=True)


def _of_shoot(owner: str) -> str:
    return inventory.key("shoots", owner)


def _existing(account: str, kind: str, id_: str) -> str:
    return inventory.key("existing", account, kind, id_)


def _estate(content: Json) -> Estate:
    uses = [(str(one[0]), str(one[1])) for one in content.get("uses") or []]
    objects, made_by = inventory.decoded(content.get("objects")), content.get("made_by")
    maker = Maker(subjects.ref(str(made_by[0])), str(made_by[1])) if made_by else None
    pools = tuple(map(str, content.get("pools") or ()))
    return Estate(objects, uses, str(content.get("account")), maker, pools)
