"""Keeps certificates and configurations up to date, so that API servers trust the webhook server.

Certificates are in Secrets that all processes of a deployment read; one of them, the holder of a lease,
writes them and the configurations. API servers trust a new authority before it signs our certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from webhooks.server import Certificates
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, TransientError, WindowboxError
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import NAMESPACES, SECRETS, Resource
from windowbox.rights import webhookconfigurations as configurations
from windowbox.rights.webhookconfigurations import Manifest
from windowbox.secretsmanager import contents, generation, secrets
from windowbox.secretsmanager.configs import Authority, Certificate, Usage
from windowbox.secretsmanager.decisions import WEBHOOKS
from windowbox.secretsmanager.manager import Ensured, SecretsManager
from windowbox.settings.webhooksettings import WebhookSettings

logger = logging.getLogger(__name__)

_AUTHORITY_VALIDITY = timedelta(days=30)
_UNMANAGED_VALIDITY = timedelta(days=3650)
_PAUSE = 1.0
_QUIET = 3600.0
"""Seconds after which all is compared again, even if nothing seems to have changed."""


@dataclass(frozen=True)
class Served:
    """Whose webhooks a process serves, and where what belongs to them is."""

    settings: WebhookSettings
    own: Kube
    """The cluster with the Secrets."""
    called: Kube
    """The cluster whose API server is to call us."""
    garden: bool = False

    @property
    def names(self) -> configurations.Names:
        return configurations.names(self.settings, garden=self.garden)

    def configurations(self, bundle: bytes, owner: Manifest | None) -> list[Manifest]:
        build = configurations.for_garden if self.garden else configurations.for_seed
        return build(self.settings, bundle, owner)


class Keeping:
    """Certificates and configurations of one deployment."""

    def __init__(
        self, served: Served, certificates: Certificates, trusted: Callable[[], Awaitable[None]]
    ) -> None:
        """`trusted` is called when the authorities that API servers are to trust have changed."""
        self._served = served
        self._certificates = certificates
        self._trusted = trusted
        names = served.names
        self._authority = Authority(names.authority, _AUTHORITY_VALIDITY)
        self._certificate = server_certificate(names, configurations.hosts(served.settings, names))
        self._manager = SecretsManager(served.own, served.settings.namespace, names.identity)
        self._bundle = b""
        self._told = 0.0
        """When API servers were told of another bundle."""
        self.configured = asyncio.Event()
        """Set once API servers have been told to ask us."""
        self.shown = ""
        """The name of the Secret whose certificate is shown."""
        self.renewal: datetime | None = None
        """When something is to be renewed next."""

    async def begin(self) -> None:
        """Have a certificate: the newest there is; a new one if there is none."""
        if not self._served.settings.namespace:
            self._bundle = await asyncio.to_thread(self._generate)
            return
        if not await self._load():
            await self._manager.ensure([self._authority, self._certificate], WEBHOOKS, datetime.now(UTC))
            await self._load()

    async def follow(self) -> None:
        """Serve the newest certificate; never returns."""
        if not self._served.settings.namespace:
            return
        await self._changes(self._served.own, self._secrets(), self._load)

    async def keep(self) -> None:
        """Renew certificates in time or when they have changed, and write configurations; never returns."""
        again = asyncio.Event()

        async def changed() -> None:
            again.set()

        async with asyncio.TaskGroup() as group:
            for kind in {one["kind"] for one in self._wanted(b"", None)}:
                named = configurations.RESOURCES[kind]._replace(named=self._served.names.prefixed)
                group.create_task(self._changes(self._served.called, named, changed))
            if self._served.settings.namespace:
                group.create_task(self._changes(self._served.own, self._secrets(), changed))
            while True:
                again.clear()
                pause = await self._once()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await again.wait()

    async def _once(self) -> float:
        """One pass; returns the seconds until the next is due."""
        try:
            if not self._served.settings.namespace:
                await self._write(self._bundle)
                return _QUIET
            return await self._renew()
        except TransientError as error:
            logger.warning("webhooks: %s; again in %.0f s", error, _PAUSE)
        except WindowboxError as error:
            logger.error("webhooks: %s", error)
        return _PAUSE

    async def _renew(self) -> float:
        now = datetime.now(UTC)
        ensured = await self._manager.ensure([self._authority], WEBHOOKS, now)
        bundle = ensured.bundles[self._authority.name].encode()
        fits = await self._shown_fits(bundle)
        if not fits:  # there is nothing to spread: who trusts the bundle does not trust us
            await self._manager.ensure([self._authority, self._certificate], WEBHOOKS, now)
            await self._load()
        changed = await self._write(bundle)
        if changed or bundle != self._bundle:
            self._told = time.time()
            await self._trusted()
        self._bundle = bundle
        waits = await self._spread(now) if fits else 0.0
        if not waits:
            ensured = await self._manager.ensure([self._authority, self._certificate], WEBHOOKS, now)
            await self._manager.clean_up(ensured)
        return self._pause(ensured, waits)

    async def _shown_fits(self, bundle: bytes) -> bool:
        """Whether API servers with this bundle trust the newest certificate, at the host they call."""
        found = await self._manager.read(self._certificate.name)
        return found is not None and contents.is_trusted(self._certificate, found[1], bundle)

    async def _spread(self, now: datetime) -> float:
        """Seconds until the newest authority may sign our certificate: not all may trust it yet."""
        authority = await self._manager.read(self._authority.name)
        if not authority:
            return 0.0
        lifetime = contents.lifetime(authority[1])
        assert lifetime
        # By the former, a process that has just started knows; the latter is exact.
        told = max(lifetime[0] + generation.BEFORE.total_seconds(), self._told)
        return max(0.0, told + self._served.settings.spread - now.timestamp())

    def _pause(self, ensured: Ensured, waits: float) -> float:
        if ensured.due is None:
            return waits or _QUIET
        self.renewal = datetime.fromtimestamp(ensured.due, UTC)
        return min(waits or _QUIET, max(ensured.due - time.time(), 0.0) + _PAUSE)

    async def _load(self) -> bool:
        """Show the certificate of the newest Secret. False if there is none."""
        found = await self._manager.read(self._certificate.name)
        if found is None:
            return False
        name, data = found
        if name != self.shown:
            self._certificates.use(data[contents.CERTIFICATE], data[contents.KEY])
            logger.info("the certificate of Secret %s is shown", name)
            self.shown = name
        return True

    def _generate(self) -> bytes:
        """A certificate for as long as we run; returns its authority."""
        now = datetime.now(UTC)
        authority = replace(self._authority, validity=_UNMANAGED_VALIDITY)
        signer = generation.authority(authority, authority.name, now)
        made = generation.certificate(self._certificate, signer, now)
        self._certificates.use(made[contents.CERTIFICATE], made[contents.KEY])
        self.shown = "generated at start"
        return signer[contents.CA_CERTIFICATE]

    async def _write(self, bundle: bytes) -> bool:
        """Create or update the configurations. Whether one had to be."""
        written = False
        wanted = self._wanted(bundle, await self._owner())
        for one in wanted:
            written |= await _written(self._served.called, one)
        for kind in configurations.RESOURCES.keys() - {one["kind"] for one in wanted}:
            await _emptied(self._served.called, kind, self._served.names.prefixed)
        self.configured.set()
        return written

    def _wanted(self, bundle: bytes, owner: Manifest | None) -> list[Manifest]:
        return self._served.configurations(bundle, owner)

    async def _owner(self) -> Manifest | None:
        settings = self._served.settings
        name = settings.owner_namespace or settings.namespace
        found = await self._served.called.find(NAMESPACES, "", name) if name else None
        return dict(found.raw) if found else None

    def _secrets(self) -> Resource:
        selector = f"{secrets.IDENTITY}={self._served.names.identity}"
        return SECRETS._replace(selector=selector, within=self._served.settings.namespace)

    async def _changes(self, kube: Kube, resource: Resource, act: Callable[[], Awaitable[object]]) -> None:
        """Call `act` whenever such an object has changed, and after each gap; never returns."""
        while True:
            try:
                version = (await kube.page(resource, metadata_only=True)).resource_version
                await act()
                async for _ in kube.watch(resource, version, metadata_only=True):
                    await act()
            except WindowboxError as error:
                logger.info("watch of %s: %s; again in %.0f s", resource.id, error, _PAUSE)
                await asyncio.sleep(_PAUSE)


def server_certificate(names: configurations.Names, hosts: Collection[str]) -> Certificate:
    """What the server shows to those who call it by these hosts."""
    return Certificate(
        names.server,
        common_name=names.component,
        authority=names.authority,
        usage=Usage.SERVER,
        dns_names=tuple(host for host in hosts if not configurations.is_address(host)),
        ip_addresses=tuple(host for host in hosts if configurations.is_address(host)),
    )


async def _written(kube: Kube, wanted: Manifest) -> bool:
    """Create the configuration, or make it what it is to be. False if it was."""
    resource, name = configurations.RESOURCES[wanted["kind"]], wanted["metadata"]["name"]
    found = await kube.find(resource, "", name)
    if found is None:
        await kube.create(resource, "", wanted)
        logger.info("%s %s: created", resource.kind, name)
        return True
    patch = _difference(wanted, found)
    if not patch:
        return False
    try:
        version = {"resourceVersion": found.resource_version}
        metadata = {**mapping(patch.get("metadata")), **version}
        await kube.merge(resource, "", name, {**patch, "metadata": metadata})
    except Conflict as error:
        raise TransientError(str(error)) from error
    logger.info("%s %s: written", resource.kind, name)
    return True


async def _emptied(kube: Kube, kind: str, name: str) -> None:
    """Remove the webhooks of a former configuration: no process serves them now."""
    resource = configurations.RESOURCES[kind]
    found = await kube.find(resource, "", name)
    if found is None or not found.raw.get("webhooks"):
        return
    if any(found.labels.get(label) != value for label, value in configurations.LABELS.items()):
        return
    try:
        version = {"resourceVersion": found.resource_version}
        await kube.merge(resource, "", name, {"metadata": version, "webhooks": []})
    except Conflict as error:
        raise TransientError(str(error)) from error
    logger.info("%s %s: emptied, as all its webhooks are disabled", kind, name)


def _difference(wanted: Manifest, found: Object) -> dict[str, Any]:
    """A merge patch that makes the configuration what it is to be; empty if it is."""
    patch: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if missing := {k: v for k, v in wanted["metadata"]["labels"].items() if found.labels.get(k) != v}:
        metadata["labels"] = missing
    owners = wanted["metadata"].get("ownerReferences")
    if owners is not None and owners != found.metadata.get("ownerReferences"):
        metadata["ownerReferences"] = owners
    if metadata:
        patch["metadata"] = metadata
    if configurations.defaulted(wanted) != found.raw.get("webhooks"):
        patch["webhooks"] = wanted["webhooks"]
    return patch
