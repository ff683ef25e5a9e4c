"""The inventories of emulated clouds, in the bucket `clouds`: read and written by runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bus import streams
from bus.clusters.clusters import Clusters
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from clouds.frame import inventory
from clouds.frame.cloud import Cloud
from clouds.frame.inventory import CloudObject, Found, Reference
from windowbox.clients.kubernetes.apiresponses import UNAUTHENTICATED
from windowbox.errors import Conflict, Malformed, Missing, PermanentError
from windowbox.models.objects import from_base64, mapping
from windowbox.models.refs import SECRETS
from workers.core.cloudfaults import CloudFaults
from workers.core.lifecycle.actuators import Run

Json = dict[str, Any]


class Account(NamedTuple):
    """An account of a cloud, as the inventory names it."""

    name: str
    shown: Mapping[str, str]
    """What ids and statuses of the cloud show of its credentials."""


class Estate(NamedTuple):
    """What the inventory has of one Shoot."""

    objects: list[CloudObject]
    uses: list[tuple[str, str]]
    """Kinds and ids of existing objects that it may have claimed."""
    account: str


class CloudAccounts:
    """Accounts of clouds. All requests are recorded, and none has anything of a Secret."""

    def __init__(self, bus: Bus, clusters: Clusters) -> None:
        self._bucket = Bucket(bus, streams.CLOUDS)
        self._clusters = clusters
        self._faults = CloudFaults(bus)

    async def check(self, run: Run, account: str, part: str) -> None:
        """Make a call to the cloud: an error of the cloud if a fault is set for it (`CloudFaults.check`).

        Checks for drift make none: nobody would see that they fail.
        """
        if not run.drift:
            owner = run.shoot.technical_id if run.shoot else ""
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
            if cloud.account is None:
                raise Malformed(
                    f"spec.type: cloud {cloud.type!r} is checked, but not emulated yet: use another type"
                )
            account = cloud.account(data)
            return {
                "name": inventory.account_name(cloud.type, account.identity),
                "shown": dict(account.shown),
            }

        found = await run.recorder.call("account", {"secret": f"{namespace}/{name}"}, read)
        return Account(str(found["name"]), found["shown"])

    async def estate(self, run: Run, owner: str) -> Estate | None:
        """What the inventory has of a Shoot; None if nothing."""
        found = await self._read(run, _of_shoot(owner))
        return None if found is None else _estate(found)

    async def existing(self, run: Run, account: str, references: Collection[Reference]) -> Found:
        """The existing objects that a Shoot refers to. Malformed if it refers to too many."""
        if len(references) > inventory.MOST_REFERENCES:
            raise Malformed(
                f"spec.providerConfig names {len(references)} existing objects, more than "
                f"{inventory.MOST_REFERENCES}: name fewer"
            )
        found = {}
        for one in references:
            if content := await self._read(run, _existing(account, one.kind, one.id)):
                found[one.kind, one.id] = inventory.decoded([content])[0]
        return found

    async def keep(
        self, run: Run, account: str, owner: str, objects: Iterable[CloudObject], uses: Iterable[Reference]
    ) -> None:
        """Make these the objects of a Shoot, and the existing ones that it uses alone its own."""
        wanted = [(one.kind, one.id) for one in uses if one.exclusive]
        before = await self.estate(run, owner)
        former = before.uses if before else []
        if before and before.account != account:  # the credentials are others
            for kind, id_ in former:
                await self._release(run, before.account, kind, id_, owner)
            former = []
        left = [one for one in former if one not in wanted]
        content = {"account": account, "objects": inventory.encoded(objects)}
        # What is claimed is listed before, and what is listed is released: a run may end at any point.
        await self._write(run, _of_shoot(owner), content | {"uses": [*wanted, *left]})
        for kind, id_ in wanted:
            await self._claim(run, account, kind, id_, owner)
        for kind, id_ in left:
            await self._release(run, account, kind, id_, owner)
        if left:
            await self._write(run, _of_shoot(owner), content | {"uses": wanted})

    async def drop(self, run: Run, owner: str) -> None:
        """Remove all objects of a Shoot, and release those that it used."""
        before = await self.estate(run, owner)
        if before is None:
            return
        await self.check(run, before.account, "infrastructure")
        for kind, id_ in before.uses:
            await self._release(run, before.account, kind, id_, owner)
        await self._write(run, _of_shoot(owner), None)

    async def _claim(self, run: Run, account: str, kind: str, id_: str, owner: str) -> None:
        def user(found: CloudObject | None) -> str:
            if found is None or (not found.shared and found.used_by not in ("", owner)):
                raise Conflict(f"{kind} {id_!r:.80} was claimed or removed meanwhile")
            return "" if found.shared else owner

        await self._use(run, _existing(account, kind, id_), owner, user)

    async def _release(self, run: Run, account: str, kind: str, id_: str, owner: str) -> None:
        def user(found: CloudObject | None) -> str:
            return "" if found is None or found.used_by == owner else found.used_by

        await self._use(run, _existing(account, kind, id_), "", user)

    async def _use(self, run: Run, key: str, by: str, user: Callable[[CloudObject | None], str]) -> None:
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

        await run.recorder.call("inventory", {"use": key, "by": by}, use, effect=True)

    async def _read(self, run: Run, key: str) -> Json | None:
        async def read() -> Json | None:
            value = (await self._bucket.get(key)).value
            return None if value is None else mapping(json.loads(value))  # type: ignore[return-value]

        found: Json | None = await run.recorder.call("inventory", {"read": key}, read)
        return found

    async def _write(self, run: Run, key: str, content: Json | None) -> None:
        """Write an entry; None removes it. Nothing is written if it is there already."""

        async def write() -> bool:
            entry = await self._bucket.get(key)
            value = None if content is None else json.dumps(content, sort_keys=True).encode()
            if entry.value == value:
                return False
            if value is None:
                await self._bucket.delete(key, entry.sequence)
            else:
                await self._bucket.put(key, value, entry.sequence)
            return True

        await run.recorder.call("inventory", {"write": key, "content": content}, write, effect=True)


def _of_shoot(owner: str) -> str:
    return inventory.key("shoots", owner)


def _existing(account: str, kind: str, id_: str) -> str:
    return inventory.key("existing", account, kind, id_)


def _estate(content: Json) -> Estate:
    uses = [(str(one[0]), str(one[1])) for one in content.get("uses") or []]
    return Estate(inventory.decoded(content.get("objects")), uses, str(content.get("account")))
