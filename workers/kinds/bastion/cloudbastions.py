"""Bastions of clouds: they run where the clouds' machines do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any

from clouds import table
from clouds.frame.cloud import Cloud
from clouds.frame.pools import Site
from windowbox.errors import Malformed
from windowbox.models.clouds import WITH_BASTIONS
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import Object, mapping
from windowbox.settings.cloudsettings import CloudSettings
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.actuators import Run
from workers.kinds.bastion import bastionimages

CREDENTIALS = "cloudprovider"
"""The Secret in the Bastion's namespace."""


def cloud_of(bastion: Object) -> Cloud | None:
    """The cloud of a Bastion; None for type local."""
    type_ = bastion.spec.get("type")
    return table.cloud(WITH_BASTIONS[type_]) if type_ in WITH_BASTIONS else None


@dataclass(frozen=True)
class CloudBastions:
    accounts: CloudAccounts
    settings: CloudSettings

    async def call(self, run: Run) -> None:
        """Call the cloud of a Bastion, if it has one. An error if its Secret has no credentials."""
        if cloud := cloud_of(run.object):
            account = await self.accounts.account(run, cloud, run.ref.namespace, CREDENTIALS)
            await self.accounts.check(run, account.name, "bastion")

    def image(self, cloud: Cloud, cluster: Object, profile: CloudProfileSpec, now: datetime) -> str:
        """The container image. Malformed if the cloud has no image as the CloudProfile asks for."""
        if not self.settings.image:
            raise Malformed("setting clouds.image is empty: name the container image of clouds' machines")
        machine, name, version = bastionimages.chosen(profile, now)
        pool: dict[str, Any] = {
            "name": "bastion",
            "machineType": machine.name,
            "architecture": machine.architecture,
            "machineImage": {"name": name, "version": version},
            "userDataSecretRef": {"name": "", "key": ""},
            **dict.fromkeys(("minimum", "maximum", "maxSurge", "maxUnavailable"), 1),
        }
        shoot = mapping(cluster.spec.get("shoot"))
        region = str(mapping(shoot.get("spec")).get("region") or "")
        cloud_profile = mapping(cluster.spec.get("cloudProfile"))
        assert cloud.machines  # the clouds of all types have it
        cloud.machines.used_image(
            WorkerPool.model_validate(pool),
            Site(cluster.name, region, infrastructure={}, shoot=shoot, profile=cloud_profile),
        )
        return self.settings.image


def ingress(cloud: Cloud, cluster: Object, found: dict[str, Any]) -> dict[str, Any]:
    """The endpoint as the cloud reports it: the address, and its public name if the cloud gives one."""
    address = str(found.get("ip") or "")
    if not address:
        return found
    region = str(mapping(mapping(cluster.spec.get("shoot")).get("spec")).get("region") or "")
    named = cloud.public_name is not None and ip_address(address).version == 4
    name = cloud.public_name(address, region) if cloud.public_name and named else None
    return {"ip": address, **({"hostname": name} if name else {})}
