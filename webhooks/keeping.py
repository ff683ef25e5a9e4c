"""Keeps certificates and configurations up to date, so that API servers trust the webhook server.

All processes of a deployment read the certificates from Secrets. The holder of a lease writes these Secrets
and the configurations. API servers trust a new authority before it signs our certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
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
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Usage
from windowbox.secretsmanager.decisions import WEBHOOKS
from windowbox.secretsmanager.manager import SecretsManager
from windowbox.settings.webhooksettings import WebhookSettings

logger = logging.getLogger(__name__)

_AUTHORITY_VALIDITY = timedelta(days=30)
_UNMANAGED_VALIDITY = timedelta(days=3650)
_PAUSE = 1.0
_QUIET = 3600.0
"""Seconds after which everything is compared again, though no watch has reported a change."""


@dataclass(frozen=True)
class Served:
    """The webhooks that a process serves, and the clusters that they belong to."""

    settings: WebhookSettings
    own: Kube
    """The cluster with the Secrets."""
    called: Kube
    """The cluster whose API server calls us."""
    garden: bool = False
    clouds: tuple[str, ...] = ()
    """Types of providers besides `local` whose webhooks are served."""

    @property
    def names(self) -> configurations.Names:
        return configurations.names(self.settings, garden=self.garden)

    def configurations(self, bundle: bytes, owner: Manifest | None) -> list[Manifest]:
        if self.garden:
            return configurations.for_garden(self.settings, bundle, owner, self.clouds)
        return configurations.for_seed(self.settings, bundle, owner, self.clouds)


class Keeping:
    """Certificates and configurations of one deployment."""

    def __init__(
        self, served: Served, certificates: Certificates, trusted: Callable[[], Awaitable[None]]
    ) -> None:
        """`trusted` is called when API servers are to trust other authorities."""
        self._served = served
        self._certificates = certificates
        self._trusted = trusted
        names = served.names
        self._authority = Authority(names.authority, _AUTHORITY_VALIDITY)
        self._certificate = server_certificate(names, configurations.hosts(served.settings, names))
        self._manager = SecretsManager(served.own, served.settings.namespace, names.identity)
        selector = f"{secrets.IDENTITY}={names.identity}"
        self._secrets = SECRETS._replace(selector=selector, within=served.settings.namespace)
        self._bundle = b""
        self._announced = 0.0
        """When the present bundle was written to the configurations."""
        self.configured = asyncio.Event()
        """Set once the configurations are written, so that API servers call us."""
        self.shown = ""
        """The name of the Secret whose certificate is shown."""
        self.renewal: datetime | None = None
        """When the next certificate is due for renewal."""

    async def begin(self) -> None:
        """Show the newest certificate; generate one if there is none."""
        if self._served.settings.namespace:
            if not await self._load():
                wanted = (self._authority, self._certificate)
                await self._manager.ensure(wanted, WEBHOOKS, await self._served.own.now())
                if not await self._load():
                    raise TransientError("the webhooks' certificate is not there yet")
            return
        # Without Secrets, the certificate is valid for as long as this process runs.
        authority = replace(self._authority, validity=_UNMANAGED_VALIDITY)
        now = await self._served.own.now()
        signer, made = await asyncio.to_thread(generation.unmanaged, authority, self._certificate, now)
        self._certificates.use(made[contents.CERTIFICATE], made[contents.KEY])
        self.shown = "generated at start"
        self._bundle = signer[contents.CA_CERTIFICATE]

    async def follow(self) -> None:
        """Show the newest certificate whenever the Secrets change; never returns if they are managed."""
        if self._served.settings.namespace:
            await _follow(self._served.own, self._secrets, self._load)

    async def keep(self) -> None:
        """Renew certificates when due, and write configurations when they differ; never returns."""
        woken = asyncio.Event()

        async def wake() -> None:
            woken.set()

        async with asyncio.TaskGroup() as group:
            for kind in {one["kind"] for one in self._served.configurations(b"", None)}:
                named = configurations.RESOURCES[kind]._replace(named=self._served.names.prefixed)
                group.create_task(_follow(self._served.called, named, wake))
            if self._served.settings.namespace:
                group.create_task(_follow(self._served.own, self._secrets, wake))
            while True:
                woken.clear()
                try:
                    if self._served.settings.namespace:
                        pause = await self._renew()
                    else:
                        await self._write(self._bundle)
                        pause = _QUIET
                except TransientError as error:
                    pause = _PAUSE
                    logger.warning("webhooks: %s; retrying in %.0f s", error, pause)
                except WindowboxError as error:
                    pause = _PAUSE
                    logger.error("webhooks: %s", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await woken.wait()

    async def _renew(self) -> float:
        """Renew and write everything that is due; returns the seconds until the next pass."""
        now = await self._served.own.now()
        both: list[Authority | Certificate | BasicAuth] = [self._authority, self._certificate]
        ensured = await self._manager.ensure([self._authority], WEBHOOKS, now)
        bundle = ensured.bundles[self._authority.name].encode()
        found = await self._manager.read_complete(self._certificate)
        fits = found is not None and contents.is_trusted(self._certificate, found[1], bundle)
        if not fits:
            # No API server with this bundle trusts our certificate, so a new one need not wait for them.
            await self._manager.ensure(both, WEBHOOKS, now)
            await self._load()
        if await self._write(bundle) or bundle != self._bundle:
            self._announced = (await self._served.own.now()).timestamp()
            await self._trusted()
        self._bundle = bundle
        waits = 0.0
        if fits and (authority := await self._manager.read_complete(self._authority)):
            # The newest authority must not sign before all API servers trust it. A process that has just
            # started knows only when it was generated; `_announced` is exact.
            lifetime = contents.lifetime(authority[1])
            assert lifetime
            since = max(lifetime[0] + generation.BEFORE.total_seconds(), self._announced)
            left, spread = since - now.timestamp(), self._served.settings.spread
            # A clock that was far ahead may have generated the authority: it must delay nothing.
            waits = max(0.0, left + spread) if left <= spread else 0.0
        if not waits:
            ensured = await self._manager.ensure(both, WEBHOOKS, now)
            await self._manager.clean_up(ensured)
        pause = waits or _QUIET
        if ensured.due is None:
            return pause
        self.renewal = datetime.fromtimestamp(ensured.due, UTC)
        return min(pause, max(ensured.due - now.timestamp(), 0.0) + _PAUSE)

    async def _load(self) -> bool:
        """Show the certificate of the newest complete Secret. False if there is none."""
        found = await self._manager.read_complete(self._certificate)
        if found is None:
            return False
        name, data = found
        if name != self.shown:
            self._certificates.use(data[contents.CERTIFICATE], data[contents.KEY])
            logger.info("the certificate of Secret %s is shown", name)
            self.shown = name
        return True

    async def _write(self, bundle: bytes) -> bool:
        """Create or update the configurations. False if all were up to date."""
        settings, kube = self._served.settings, self._served.called
        namespace = settings.owner_namespace or settings.namespace
        owner = await kube.find(NAMESPACES, "", namespace) if namespace else None
        wanted = self._served.configurations(bundle, dict(owner.raw) if owner else None)
        written = False
        for one in wanted:
            written |= await _ensure(kube, one)
        for kind in configurations.RESOURCES.keys() - {one["kind"] for one in wanted}:
            # No process serves the webhooks of a configuration with our name and labels that is not wanted.
            resource, name = configurations.RESOURCES[kind], self._served.names.prefixed
            found = await kube.find(resource, "", name)
            if found and found.raw.get("webhooks") and configurations.LABELS.items() <= found.labels.items():
                await _merge(kube, resource, found, {"webhooks": []})
                logger.info("%s %s: emptied, as all its webhooks are disabled", kind, name)
        self.configured.set()
        return written


def server_certificate(names: configurations.Names, hosts: Collection[str]) -> Certificate:
    """The server's certificate for callers that use these hosts."""
    return Certificate(
        names.server,
        common_name=names.component,
        authority=names.authority,
        usage=Usage.SERVER,
        dns_names=tuple(host for host in hosts if not configurations.is_address(host)),
        ip_addresses=tuple(host for host in hosts if configurations.is_address(host)),
        # After a pause, an API server opens up to 25 connections at once. Handshakes hold the event loop.
        elliptic=True,
    )


async def _follow(kube: Kube, resource: Resource, act: Callable[[], Awaitable[object]]) -> None:
    """Call `act` when an object of `resource` changes, and after each gap of the watch; never returns."""
    while True:
        try:
            version = (await kube.page(resource, metadata_only=True)).resource_version
            await act()
            async for _ in kube.watch(resource, version, metadata_only=True):
                await act()
        except WindowboxError as error:
            logger.info("watch of %s: %s; retrying in %.0f s", resource.id, error, _PAUSE)
            await asyncio.sleep(_PAUSE)


async def _ensure(kube: Kube, wanted: Manifest) -> bool:
    """Create or update the configuration. False if it is up to date."""
    resource, name = configurations.RESOURCES[wanted["kind"]], wanted["metadata"]["name"]
    found = await kube.find(resource, "", name)
    if found is None:
        await kube.create(resource, "", wanted)
        logger.info("%s %s: created", resource.kind, name)
        return True
    metadata: dict[str, Any] = {}
    if missing := {k: v for k, v in wanted["metadata"]["labels"].items() if found.labels.get(k) != v}:
        metadata["labels"] = missing
    owners = wanted["metadata"].get("ownerReferences")
    if owners is not None and owners != found.metadata.get("ownerReferences"):
        metadata["ownerReferences"] = owners
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if configurations.defaulted(wanted) != found.raw.get("webhooks"):
        patch["webhooks"] = wanted["webhooks"]
    if not patch:
        return False
    await _merge(kube, resource, found, patch)
    logger.info("%s %s: written", resource.kind, name)
    return True


async def _merge(kube: Kube, resource: Resource, found: Object, patch: Mapping[str, Any]) -> None:
    """Apply the merge patch with optimistic concurrency."""
    metadata = {**mapping(patch.get("metadata")), "resourceVersion": found.resource_version}
    try:
        await kube.merge(resource, "", found.name, {**patch, "metadata": metadata})
    except Conflict as error:
        raise TransientError(str(error)) from error
