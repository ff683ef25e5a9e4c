"""The Secrets of one manager identity in one namespace: generates missing ones, removes unused ones.

The data of Secrets leaves this module only through `read`: what `ensure` returns may be recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pydantic import BaseModel

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Malformed, TransientError
from windowbox.models.refs import SECRETS, Resource
from windowbox.secretsmanager import configs, contents, decisions, generation, secrets
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config
from windowbox.secretsmanager.decisions import Policy
from windowbox.secretsmanager.secrets import Stored

logger = logging.getLogger(__name__)


def _lower_priority() -> None:
    # Linux has a priority for each thread.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


_GENERATING = ThreadPoolExecutor(os.cpu_count() or 1, "keys", _lower_priority)
"""Generates keys on all processors, at a priority below the event loops."""
_SOURCES = SECRETS._replace(selector=secrets.USE_DATA_FOR)


class Ensured(BaseModel, frozen=True):
    """The Secrets of all configs, by their names; of bundles, by `NAME-bundle`. It holds no secret data."""

    names: dict[str, str] = {}
    """The names of Secrets."""
    bundles: dict[str, str] = {}
    """The certificates of current and old authorities, by the names of the authorities' configs."""
    unused: dict[str, str] = {}
    """Secrets that were found, but are no longer needed: uids by names."""
    due: int | None = None
    """When something has to be renewed or dropped: unix time."""
    changed: bool = False
    """Whether a Secret was made or labelled."""


class SecretsManager:
    """Generates and keeps Secrets. One at a time for an identity and a namespace."""

    def __init__(self, kube: Kube, namespace: str, identity: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._identity = identity
        selector = f"{secrets.MANAGED_BY}={secrets.MANAGER},{secrets.IDENTITY}={identity}"
        self._ours = SECRETS._replace(selector=selector)

    async def ensure(self, wanted: Sequence[Config], policy: Policy, now: datetime) -> Ensured:
        """Have a valid Secret for each config. Those that are no longer needed stay until `clean_up`."""
        run = _Run(self, await self._list(), policy, now)
        # What is signed needs its authority, and bundles need all of them.
        for config in sorted(wanted, key=lambda config: not isinstance(config, Authority)):
            await run.ensure(config)
        return run.result()

    async def clean_up(self, ensured: Ensured) -> None:
        """Delete what `ensure` has found to be unused."""
        for name, uid in ensured.unused.items():
            with contextlib.suppress(Conflict):  # another Secret has its name now
                await self._kube.remove(SECRETS, self._namespace, name, uid=uid)

    async def remove_all(self) -> None:
        """Delete all Secrets of the identity."""
        for stored in await self._list():
            await self._kube.remove(SECRETS, self._namespace, stored.name)

    async def read(self, config_name: str) -> tuple[str, Mapping[str, bytes]] | None:
        """The name and the data of the newest Secret of a config; None if there is none."""
        newest = secrets.newest(await self._of(config_name))
        return (newest.name, newest.data) if newest else None

    async def read_complete(self, config: Config) -> tuple[str, Mapping[str, bytes]] | None:
        """The same of the newest one that holds what the config asks for."""
        found = await self._of(config.name)
        newest = secrets.newest(one for one in found if contents.complete(config, one.data))
        return (newest.name, newest.data) if newest else None

    async def _of(self, config_name: str) -> list[Stored]:
        return [one for one in await self._list() if one.config == config_name and not one.deleting]

    async def _list(self) -> list[Stored]:
        return await self._listed(self._ours)

    async def _listed(self, resource: Resource) -> list[Stored]:
        return [Stored.of(one) async for one in self._kube.objects(resource, namespace=self._namespace)]


class _Run:
    """One pass over all configs."""

    def __init__(
        self, manager: SecretsManager, found: Sequence[Stored], policy: Policy, at: datetime
    ) -> None:
        self._manager = manager
        self._found = found
        self._policy = policy
        self._at = at
        self._now = int(at.timestamp())
        self._current: dict[str, Stored] = {}
        self._old: dict[str, Stored | None] = {}
        self._due: list[int] = []
        self._bundles: dict[str, str] = {}
        self._changed = False
        self._sources: list[Stored] | None = None
        """Secrets whose data replaces generated data, once they are listed."""

    async def ensure(self, config: Config) -> None:
        signer = None
        if isinstance(config, Certificate):
            current, old = self._current[config.authority], self._old[config.authority]
            signer = decisions.signer(config, current, old, self._policy, self._now)
        rotation = decisions.rotation_time(config, self._found, self._policy, self._now)
        stored = decisions.chosen(config, self._found, rotation, signer)
        labels = decisions.labels(config, self._manager._identity, rotation, signer, self._now)
        if stored is None:
            stored = await self._generate(config, labels, signer)
        times = contents.lifetime(stored.data)
        if secrets.VALID_UNTIL in labels and stored.issued is not None and stored.valid_until is not None:
            # Those of the first generation; a certificate has its own.
            times = (
                stored.issued,
                stored.issued + int(labels[secrets.VALID_UNTIL]) - int(labels[secrets.ISSUED]),
            )
        stored = await self._label(stored, _with_lifetime(labels, times))
        self._current[config.name] = stored
        if decisions.renewed_by_time(config, self._policy):
            self._note(decisions.renewal_time(stored))
        if isinstance(config, Authority):
            await self._bundle(config, stored)

    def result(self) -> Ensured:
        used = {one.name for one in (*self._current.values(), *self._old.values()) if one}
        unused = {one.name: one.uid for one in self._found if not one.deleting and one.name not in used}
        return Ensured(
            names={name: one.name for name, one in self._current.items()},
            bundles=self._bundles,
            unused=unused,
            due=min(self._due, default=None),
            changed=self._changed,
        )

    async def _supplied(self, config: Config) -> Mapping[str, bytes] | None:
        """Data that a person or program provides for the Secret to be generated."""
        if self._sources is None:
            self._sources = await self._manager._listed(_SOURCES)
        sources = [one for one in self._sources if one.labels.get(secrets.USE_DATA_FOR) == config.name]
        if len(sources) > 1:
            names = ", ".join(sorted(one.name for one in sources))
            raise Malformed(
                f"Secrets {names} are all labelled {secrets.USE_DATA_FOR}: {config.name}; "
                "take the label off all but one"
            )
        for source in sources:
            _require_complete(config, source)
            times = contents.lifetime(source.data)
            by_time = times is not None and decisions.renewed_by_time(config, self._policy)
            due = times and decisions.renewal_of(*times) <= self._now
            if times and by_time and (due or decisions.begins_later(times[0], self._now)):
                # Each run would take it for a new Secret.
                begin, until = (datetime.fromtimestamp(one, UTC).isoformat() for one in times)
                valid = f"until {until}, which is due for renewal: put a newer one in"
                if not due:
                    valid = f"from {begin}, which is later: put one in that is valid"
                raise Malformed(
                    f"Secret {source.name}, labelled {secrets.USE_DATA_FOR}: {config.name}, holds a "
                    f"certificate valid {valid}, or take the label off"
                )
            return source.data
        return None

    async def _generate(self, config: Config, labels: dict[str, str], signer: Stored | None) -> Stored:
        name = decisions.secret_name(
            config.name, labels[secrets.CONFIG], labels.get(secrets.SIGNING, ""), labels[secrets.ROTATION]
        )
        data = await self._supplied(config)
        if data is None:
            act = functools.partial(_generated, config, name, signer, self._at)
            data = await asyncio.get_running_loop().run_in_executor(_GENERATING, act)
        times = contents.lifetime(data)
        made = await self._create(name, _with_lifetime(labels, times), data)
        if made.deleting:
            raise TransientError(f"waiting for the former Secret {name} to be gone")
        _require_complete(config, made)
        return made

    async def _bundle(self, config: Authority, current: Stored) -> None:
        """The certificates of the current and the old authority, in a Secret of their own."""
        old = decisions.old_authority(config, current, self._found, self._policy, self._now)
        self._old[config.name] = old
        self._note(decisions.dropping_time(current, old, self._policy))
        trusted = [current, *([old] if old else [])]
        certificates = {one.name: one.data[contents.CA_CERTIFICATE] for one in trusted}
        checksum = configs.bundle_checksum(certificates)
        text = generation.bundle(*(one.data for one in trusted))
        labels = decisions.bundle_labels(config, self._manager._identity, checksum)
        stored = decisions.chosen_bundle(config, self._found, checksum, text)
        if stored is None:
            name = decisions.secret_name(config.bundle, checksum, "", "")
            stored = await self._create(name, labels, {contents.BUNDLE: text})
        self._current[config.bundle] = await self._label(stored, labels)
        self._bundles[config.name] = text.decode()

    async def _create(self, name: str, labels: Mapping[str, str], data: Mapping[str, bytes]) -> Stored:
        self._changed = True
        kube, namespace = self._manager._kube, self._manager._namespace
        try:
            made = await kube.create(SECRETS, namespace, secrets.manifest(namespace, name, labels, data))
        except Conflict:
            # An interrupted run or another process has created it: its data counts.
            made = await kube.get(SECRETS, namespace, name)
        else:
            logger.info("Secret %s/%s: generated", namespace, name)
        return Stored.of(made)

    async def _label(self, stored: Stored, labels: Mapping[str, str]) -> Stored:
        changes = secrets.label_changes(stored.labels, labels)
        if not changes:
            return stored
        self._changed = True
        manager, patch = self._manager, {"metadata": {"labels": changes}}
        return Stored.of(await manager._kube.merge(SECRETS, manager._namespace, stored.name, patch))

    def _note(self, due: int | None) -> None:
        if due is not None:
            self._due.append(due)


def _generated(config: Config, name: str, signer: Stored | None, at: datetime) -> Mapping[str, bytes]:
    match config:
        case Authority():
            return generation.authority(config, name, at)
        case Certificate():
            assert signer is not None
            return generation.certificate(config, signer.data, at)
        case BasicAuth():
            return generation.basic_auth(config)


def _require_complete(config: Config, stored: Stored) -> None:
    if not contents.complete(config, stored.data):
        needed = ", ".join(contents.keys(config))
        of_rsa = ", with an RSA key" if isinstance(config, Authority) else ""
        raise Malformed(
            f"Secret {stored.name} does not hold {needed} that belong together{of_rsa}: delete it"
        )


def _with_lifetime(labels: dict[str, str], times: tuple[int, int] | None) -> dict[str, str]:
    if times is None:
        return labels
    return labels | {secrets.ISSUED: str(times[0]), secrets.VALID_UNTIL: str(times[1])}
