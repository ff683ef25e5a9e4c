"""ControlPlanes: volumes, rights, webhooks and generated secrets of a Shoot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from clouds.frame.services.volumes import Volumes
from windowbox.errors import PermanentError
from windowbox.kinds import Served
from windowbox.models.clouds import BY_TYPE
from windowbox.models.objects import Object
from windowbox.models.refs import (
    API_SERVER,
    CONTROL_PLANES,
    DEPLOYMENTS,
    MANAGED_RESOURCES,
    PLANE_DEPLOYMENTS,
    SECRETS,
    ObjectRef,
)
from windowbox.rights import webhookconfigurations
from windowbox.settings.kindsettings import KindSettings
from workers.core import clock, healthchecks
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status
from workers.core.owned import managedresources
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.owned.targets import TargetCluster, TargetClusters, concurrently
from workers.core.serving import Common, Serving
from workers.kinds.controlplane import (
    cloudcontroller,
    cloudstorage,
    controlplaneaccess,
    controlplanerights,
    controlplanesite,
    generatedsecrets,
    storage,
)
from workers.kinds.controlplane.controlplanesite import Site

if TYPE_CHECKING:
    from windowbox.secretsmanager.manager import Ensured


logger = logging.getLogger(__name__)

KIND = Kind(
    resource=CONTROL_PLANES,
    pool="controlplane",
    finalizer="extensions.gardener.cloud/controlplane",
    descriptions=statuses.descriptions_for("ControlPlane"),
    classes=frozenset({"shoot"}),
    clouds=BY_TYPE,
    deadline=180.0,
    deletes_without_shoot=True,
)

_IN_SHOOT = (controlplanesite.STORAGE, controlplanesite.SHOOT)
_KUBECONFIG_SECONDS = 30.0
"""Seconds until the next check for a generic kubeconfig that is missing."""


class ControlPlaneActuator(Actuator):
    """Creates the ManagedResources. Waits only for the webhooks of a Shoot."""

    def __init__(self, targets: TargetClusters, settings: KindSettings) -> None:
        self._targets = targets
        self._settings = settings.controlplane
        self._webhooks = settings.webhooks
        self._images = settings.images
        self._conditions = settings.health.conditions

    async def reconcile(self, run: Run) -> Status:
        if _is_exposure(run.object):
            return {}
        cluster = await self._targets.shoot_cluster(run)
        site, volumes = controlplanesite.site(cluster), cloudstorage.volumes(run.object, cluster)
        # Services of clouds are served from outside, whatever the setting says.
        ccm = self._deploys_ccm and volumes is None
        image = controlplanesite.balancer_image(cluster) if volumes is None else None
        target, now = self._targets.own_cluster(run), await clock.now(run.recorder)
        await self._ensure_webhooks(run, target, site)
        secrets = await generatedsecrets.ensure(target, site, now, ccm=ccm)
        if ccm:
            await controlplaneaccess.ensure_ccm(target, site.namespace)
            other = controlplaneaccess.WINDOWBOX_SECRET
        else:
            if not await controlplaneaccess.ensure_windowbox(target, site) and site.hosted:
                # Secrets are not watched, so no event requeues.
                secret = f"Secret {site.namespace}/{site.generic_kubeconfig}"
                why = f"waiting for {secret} to have a kubeconfig that names a server"
                run.dues.append((_KUBECONFIG_SECONDS, why))
                logger.info("%s: %s", run.ref, why)
            other = controlplaneaccess.CCM_SECRET
        if await target.has_secret(site.namespace, other):
            await target.remove(SECRETS, site.namespace, other)
        if volumes is None:
            await managedresources.ensure(target, _configuration(site, image))
        await self._ensure_ccm(target, site, image, secrets if ccm else None)
        await concurrently(
            *(managedresources.ensure(target, one) for one in self._in_shoot(site, volumes, ccm=ccm))
        )
        await generatedsecrets.clean_up(target, site, secrets)
        if secrets.due is not None:
            run.dues.append((max(0.0, secrets.due - now.timestamp()), "a certificate is renewed then"))
        if self._conditions == "short" or not self._settings.webhooks or site.shoot.self_hosted:
            return {}
        found = await target.cached(MANAGED_RESOURCES, site.namespace, controlplanesite.WEBHOOKS)
        checked = healthchecks.managed_resource(site.namespace, controlplanesite.WEBHOOKS, found)
        results = {healthchecks.SYSTEM_COMPONENTS_HEALTHY: [checked]}
        hibernated = site.shoot.hibernation_enabled
        return healthchecks.conditions_patch(run.object, results, now, hibernated=hibernated)

    async def delete(self, run: Run) -> None:
        await self._remove(run)

    async def force_delete(self, run: Run) -> None:
        await self._remove(run, waits=False)

    async def migrate(self, run: Run) -> None:
        """Keep the objects in the Shoot, except for its webhooks, and the generated secrets."""
        await self._remove(run, keep=True)

    @property
    def _deploys_ccm(self) -> bool:
        return self._settings.ccm == "deployment"

    async def _ensure_webhooks(self, run: Run, target: TargetCluster, site: Site) -> None:
        """Create the webhooks before anything else in the Shoot. A hibernated Shoot cannot apply them."""
        if not self._settings.webhooks or site.shoot.self_hosted:
            return
        authorities = await generatedsecrets.webhook_authorities(target, self._webhooks)
        cloud, families = str(run.object.spec.get("type")), site.shoot.ip_families
        made = webhookconfigurations.for_shoot(self._webhooks, authorities, cloud, families)
        bundle = controlplanesite.webhooks(site.namespace, made)
        if site.shoot.hibernation_enabled or run.drift:
            await managedresources.ensure(target, bundle)
        else:
            await managedresources.ensure_healthy(target, bundle, settled=True)

    async def _ensure_ccm(
        self, target: TargetCluster, site: Site, balancer_image: str | None, secrets: Ensured | None
    ) -> None:
        """Deploy a cloud-controller-manager; without secrets for it, remove a former one."""
        if secrets is None:
            if await target.cached(MANAGED_RESOURCES, site.namespace, controlplanesite.SEED):
                await managedresources.begin_removal(target, site.namespace, controlplanesite.SEED)
            return
        replicas = 0 if site.may_sleep and await _is_scaled_down(target, site.namespace) else 1
        configuration = cloudcontroller.configuration(site, balancer_image)
        image = self._images.image(
            "cloud-controller-manager-local", runtime=site.seed_version, target=site.shoot_version
        )
        server = secrets.names[cloudcontroller.SERVER_SECRET]
        made = cloudcontroller.objects(site, image, configuration, server, replicas)
        await managedresources.ensure(
            target, controlplanesite.for_seed(controlplanesite.SEED, site.namespace, made)
        )

    def _in_shoot(
        self, site: Site, volumes: Volumes | None, *, ccm: bool
    ) -> Iterator[managedresources.Bundle]:
        """The components in the Shoot, with the rights of controllers outside, and its storage classes."""
        rights = controlplanerights.cloud_controller_manager() if ccm else controlplanerights.windowbox()
        image, helper = (
            self._images.image(name, runtime=site.shoot_version, target=site.shoot_version)
            for name in ("local-path-provisioner", "local-path-helper")
        )
        if volumes is None:
            made, classes = storage.provisioner(image, helper), [storage.storage_class()]
        else:
            made = storage.provisioner(image, helper, volumes.drivers) if volumes.drivers else []
            made += cloudstorage.for_classes(volumes, site.shoot_version)
            classes = cloudstorage.classes(volumes)
        yield controlplanesite.for_shoot(controlplanesite.SHOOT, site.namespace, [*rights, *made])
        if classes:
            yield controlplanesite.for_shoot(controlplanesite.STORAGE, site.namespace, classes)

    async def _remove(self, run: Run, *, keep: bool = False, waits: bool = True) -> None:
        """Remove everything, first the objects in the Shoot, while the access to it still exists.

        With `keep`, the objects in the Shoot and the generated secrets stay. Unless it `waits`, objects that
        are not gone in time are left behind.
        """
        if _is_exposure(run.object):
            return
        target, namespace = self._targets.own_cluster(run), run.ref.namespace
        if waits:
            await self._renew_configuration(run, target)
        left = [await self._begin_removal(target, namespace, name, keep=keep) for name in _IN_SHOOT]
        if waits:
            await managedresources.require_gone(target, [one for one in left if one])
        for name in (controlplanesite.SEED, controlplanesite.CONFIGURATION):
            await self._begin_removal(target, namespace, name)
        for name in (controlplaneaccess.CCM_SECRET, controlplaneaccess.WINDOWBOX_SECRET):
            await target.remove(SECRETS, namespace, name)
        webhooks = await self._begin_removal(target, namespace, controlplanesite.WEBHOOKS)
        if waits and webhooks:
            await managedresources.require_gone(target, [webhooks])
        if not keep:
            await generatedsecrets.remove(target, namespace)

    async def _renew_configuration(self, run: Run, target: TargetCluster) -> None:
        """Keep the configuration of a cloud-controller-manager that still runs during the deletion."""
        namespace = run.ref.namespace
        seed = await target.live(MANAGED_RESOURCES, namespace, controlplanesite.SEED)
        if seed is None or seed.deleting:
            return
        former = await target.live(MANAGED_RESOURCES, namespace, controlplanesite.CONFIGURATION)
        if former is not None and former.deleting:
            return
        cluster = await self._targets.find_shoot_cluster(run)
        if cluster is None:
            return
        try:
            await managedresources.ensure(
                target,
                _configuration(controlplanesite.site(cluster), controlplanesite.balancer_image(cluster)),
            )
        except PermanentError as error:
            logger.info("%s: its configuration stays as it is: %s", run.ref, error)

    async def _begin_removal(
        self, target: TargetCluster, namespace: str, name: str, *, keep: bool = False
    ) -> Object | None:
        found = await target.live(MANAGED_RESOURCES, namespace, name)
        if found is None:
            # A run may have been cut off after the Secret, before the ManagedResource.
            held = await target.names_labelled(SECRETS, namespace, managedresources.COLLECTABLE)
            for one in held:
                if controlplanesite.is_data_of(one, name):
                    await target.remove(SECRETS, namespace, one)
            return None
        return await managedresources.begin_removal(target, namespace, name, name, keep=keep)


def _is_exposure(controlplane: Object) -> bool:
    """Former versions of Gardener had a second ControlPlane of this purpose, which needs nothing."""
    return controlplane.spec.get("purpose") == "exposure"


def _configuration(site: Site, balancer_image: str | None) -> managedresources.Bundle:
    made = cloudcontroller.configuration(site, balancer_image)
    return controlplanesite.for_seed(controlplanesite.CONFIGURATION, site.namespace, [made])


async def _is_scaled_down(target: TargetCluster, namespace: str) -> bool:
    """Whether the Shoot's API server is scaled to zero. Its Deployment is watched: a change requeues."""

    async def act() -> int:
        kube = await target.connection.api()
        found = await kube.find(DEPLOYMENTS, namespace, "kube-apiserver")
        return int(found.spec.get("replicas") or 0) if found else 0

    return not await target.recorder.call("replicas", {"deployment": f"{namespace}/kube-apiserver"}, act)


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterable[ObjectRef]:
        if ref.kind == MANAGED_RESOURCES.id and not ref.name.startswith("extension-controlplane-"):
            return ()
        if ref.kind == PLANE_DEPLOYMENTS.id and ref.name != API_SERVER:
            return ()
        return owner_index.in_namespace(ref.cluster, ref.namespace)

    return Serving(
        KIND,
        ControlPlaneActuator(common.targets, common.kinds),
        owners=owners,
        awaits_status=lambda ref, found: ref.name == controlplanesite.WEBHOOKS or found.deleting,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
