"""Machines of clouds: what their classes ask for, and what it becomes in the local provider cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clouds import table
from clouds.frame import machineclasses
from clouds.frame.cloud import Cloud
from clouds.frame.inventory import Reference
from clouds.frame.machineclasses import Instance, Machine, Machines
from clouds.frame.operator.existing import IMAGE, RESERVATION
from windowbox.errors import Malformed, PermanentError, TransientError
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import IP_POOLS, WORKERS
from windowbox.settings.cloudsettings import CloudSettings
from workers.core.cloudaccounts import Account, CloudAccounts
from workers.core.lifecycle import shootfacts
from workers.core.owned import ownerindex
from workers.core.owned.targets import TargetClusters
from workers.machines.machine import machinespecs
from workers.machines.machine.machinespecs import MachinePlan, ProviderSpec, SecretName
from workers.machines.machine.machinestatus import MachineRun

DEPLETED = "ERR_INFRA_RESOURCES_DEPLETED"
_LOCAL = "local"
_NOTHING = {"cpu": "0", "memory": "0"}


@dataclass(frozen=True)
class CloudMachines:
    """Reads what classes of clouds ask for, as far as `clouds.types` lists the clouds."""

    targets: TargetClusters
    accounts: CloudAccounts
    settings: CloudSettings
    reserves: bool
    """Whether Pods request the CPU and memory that limit them: else a host may have more machines."""

    def cloud_of(self, found: Object) -> Cloud | None:
        """The cloud of a MachineClass; None for type local, and for other programs' classes."""
        provider = found.raw.get("provider")
        type_ = str(provider).lower()
        if provider == _LOCAL or type_ not in self.settings.types:
            return None
        cloud = table.cloud(type_)
        return cloud if cloud.machines and cloud.machines.provider == provider else None

    def place(self, run: MachineRun) -> tuple[str, SecretName]:
        """The namespace of a Machine's Pod, and the Secret that leads to its cluster."""
        secret = self.settings.provider_secret
        # Gardener names the namespace of a control plane after the Shoot's technical id.
        return ownerindex.infrastructure_namespace(run.ref.namespace), SecretName(
            secret.namespace, secret.name
        )

    def labels(self, run: MachineRun, found: Object) -> dict[str, str]:
        """The labels that a cloud controller gives the node of a Machine.

        None for type local, and for a class that became invalid later: the machine is there.
        """
        cloud = self.cloud_of(found)
        if cloud is None or cloud.machines is None:
            return {}
        one = _instance(cloud.machines, run, found, {})
        try:
            _check(found, one)
        except Malformed:
            return {}
        labels = {
            "node.kubernetes.io/instance-type": one.type,
            "topology.kubernetes.io/region": one.region,
            "topology.kubernetes.io/zone": one.zone_label or one.zone,
        }
        return {name: value for name, value in labels.items() if value}

    def capacity(self, found: Object) -> dict[str, str]:
        """The CPU and memory that the node of a Machine has, as its class says."""
        capacity = mapping(mapping(found.raw.get("nodeTemplate")).get("capacity"))
        return {name: str(capacity[name]) for name in _NOTHING if name in capacity}

    async def plan(self, run: MachineRun, found: Object, cloud: Cloud) -> MachinePlan:
        """The local objects that stand for what a class of a cloud asks for."""
        assert cloud.machines
        if not self.settings.image:
            raise Malformed("setting clouds.image is empty: name the container image of clouds' machines")
        cluster = await self.targets.shoot_cluster(run.run)
        account = await self._account(run, found, cloud)
        await self._call(run, account)
        one = _instance(cloud.machines, run, found, account.shown)
        _check(found, one)
        profile = mapping(mapping(cluster.spec.get("cloudProfile")).get("spec"))
        missing = await self._missing(run, one, account, profile)
        if missing and cloud.machines.unknown_image:
            said = cloud.machines.unknown_image.format(image=missing[0][:300])
            raise Malformed(f"{said}: correct it, or add it to machineImages of the CloudProfile")
        namespace, credentials = self.place(run)
        pools = await self._address_pools(run, one, shootfacts.facts(cluster).ip_families)
        return MachinePlan(
            home=run.ref.namespace,
            machine=run.ref.name,
            namespace=namespace,
            provider=ProviderSpec(
                image=self.settings.image,
                namespace=namespace,
                ip_pool_v4=pools.get("IPv4", ""),
                ip_pool_v6=pools.get("IPv6", ""),
                resources=self._resources(one, found, profile),
            ),
            user_data=machinespecs.user_data(found),
            credentials=credentials,
            provider_id=one.provider_id,
            never_created=bool(missing),
        )

    async def reserve(self, run: MachineRun, found: Object, cloud: Cloud) -> None:
        """Take the first free reservation of those that a class lists (EQX-W1)."""
        assert cloud.machines
        one = _instance(cloud.machines, run, found, {})
        if not (one.reservations or one.reserved_only):
            return
        account = await self._account(run, found, cloud)
        for id_ in one.reservations:
            if await self.accounts.take(run.run, account.name, RESERVATION, id_, _user(run)):
                return
        if one.reserved_only:
            listed = ", ".join(one.reservations)[:300] or "none is listed"
            raise PermanentError(
                f"reservedDevicesOnly is set, and no reservation is free ({listed}): add one to "
                "reservationIDs of the pool",
                codes=(DEPLETED,),
            )

    async def check_deletion(self, run: MachineRun, found: Object, cloud: Cloud) -> None:
        """Raise the error of a cloud that does not delete the instance."""
        await self._call(run, await self._account(run, found, cloud))

    async def release(self, run: MachineRun, found: Object, cloud: Cloud) -> None:
        """Give back the reservation of a Machine that goes."""
        assert cloud.machines
        one = _instance(cloud.machines, run, found, {})
        if one.reservations:
            account = await self._account(run, found, cloud)
            # The class may have become invalid later, which blocks no deletion.
            for id_ in one.reservations[: machinespecs.MOST]:
                await self.accounts.release(run.run, account.name, RESERVATION, id_, _user(run))

    async def _call(self, run: MachineRun, account: Account) -> None:
        await self.accounts.check(run.run, account.name, "machines", run.ref.namespace)

    async def _account(self, run: MachineRun, found: Object, cloud: Cloud) -> Account:
        return await self.accounts.account(run.run, cloud, *machinespecs.credentials(found))

    async def _missing(
        self, run: MachineRun, one: Instance, account: Account, profile: Mapping[str, Any]
    ) -> list[str]:
        """The images that the cloud does not have: no CloudProfile lists them, and nobody has added them."""
        known = machineclasses.known_images(profile.get("providerConfig"))
        missing = [image for image in (one.image, *one.sources) if image not in known]
        if missing:  # Workers remember images that the CloudProfile has lost, and those made for a Shoot
            known = await self._images_of_workers(run)
            missing = [image for image in missing if image not in known]
        asked = [Reference(IMAGE, image, "") for image in missing]
        added = await self.accounts.existing(run.run, account.name, asked) if asked else {}
        return [image for image in missing if (IMAGE, image) not in added]

    async def _images_of_workers(self, run: MachineRun) -> set[str]:
        own, home = self.targets.own_cluster(run.run), run.ref.namespace

        async def list_images() -> list[str]:
            api, found = await own.connection.api(), set[str]()
            async for one in api.objects(WORKERS._replace(within=home)):
                statuses = (one.status.get("providerStatus"), one.spec.get("infrastructureProviderStatus"))
                found |= machineclasses.known_images(*statuses)
            return sorted(found)

        return set(await run.recorder.call("list", {"kind": "images", "namespace": home}, list_images))

    async def _address_pools(self, run: MachineRun, one: Instance, families: Iterable[str]) -> dict[str, str]:
        """The address pool of each IP family: that of the zone, where the cloud has a subnet for each."""
        found = {}
        async with self.targets.provider(run.run, *self.place(run)[1]) as provider:
            for family in families:
                for zone in dict.fromkeys((one.zone, "")):
                    name = ownerindex.machine_ip_pool(run.ref.namespace, family, zone)
                    if await provider.cached(IP_POOLS, "", name):
                        found[family] = name
                        break
        if not found:
            raise TransientError(
                f"no address pool of Shoot {run.ref.namespace} for zone {one.zone!r} is in the provider "
                "cluster: its Infrastructure makes it"
            )
        return found

    def _resources(
        self, one: Instance, found: Object, profile: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, str]] | None:
        """What the machine type has, as limits."""
        types = (each for each in mappings(profile.get("machineTypes")) if each.get("name") == one.type)
        has = next(types, None) or mapping(mapping(found.raw.get("nodeTemplate")).get("capacity"))
        limits = {name: str(has[name]) for name in _NOTHING if name in has}
        where = f"MachineClass {found.name}: machine type {one.type!r:.80}"
        requests = limits if self.reserves else {name: _NOTHING[name] for name in limits}
        return machinespecs.resources(where, {"requests": requests, "limits": limits})


def _instance(cloud: Machines, run: MachineRun, found: Object, credentials: Mapping[str, str]) -> Instance:
    spec, template = mapping(found.raw.get("providerSpec")), mapping(found.raw.get("nodeTemplate"))
    return cloud.instance(spec, template, Machine(run.ref.namespace, run.ref.name, credentials))


def _check(found: Object, one: Instance) -> None:
    machinespecs.check_instance(f"MachineClass {found.name}: providerSpec", one)


def _user(run: MachineRun) -> str:
    """Who uses a reservation, as the inventory shows it."""
    return f"{run.ref.namespace}/{run.ref.name}"
