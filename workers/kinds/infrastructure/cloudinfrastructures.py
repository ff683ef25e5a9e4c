"""Infrastructures of clouds: their plan, their objects in the inventory, and their status."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from clouds import table
from clouds.frame import inventory
from clouds.frame.decoding import parse
from clouds.frame.gardenobjects import ProfileSpec, ShootSpec
from clouds.frame.infrastructure import Plan, Site
from windowbox.errors import Malformed
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object, mapping, replacement
from windowbox.settings.cloudsettings import CloudSettings
from workers.core.cloudaccounts import Account, CloudAccounts
from workers.core.lifecycle.actuators import Run, Status, shoot_of
from workers.core.owned.targets import TargetCluster, TargetClusters


def is_of_cloud(object: Object) -> bool:
    return object.spec.get("type") in CLOUD_TYPES


class CloudInfrastructures:
    """Infrastructures of clouds. Their machines run in one provider cluster, which a setting names."""

    def __init__(self, targets: TargetClusters, accounts: CloudAccounts, settings: CloudSettings) -> None:
        self._targets = targets
        self._accounts = accounts
        self._settings = settings

    async def plan(self, run: Run) -> tuple[str, Plan]:
        """The account of an Infrastructure, and the cloud that it asks for."""
        cloud = table.cloud(str(run.object.spec.get("type")))
        secret = mapping(run.object.spec.get("secretRef"))
        namespace, name = str(secret.get("namespace") or run.ref.namespace), str(secret.get("name") or "")
        if not name:
            raise Malformed("spec.secretRef.name is not set: name the Secret with the cloud's credentials")
        account = await self._accounts.account(run, cloud, namespace, name)
        await self._accounts.check(run, account.name, "infrastructure")
        cluster = await self._targets.shoot_cluster(run)
        site = _site(run, cluster, account)
        existing = await self._accounts.existing(run, account.name, cloud.infrastructure.references(site))
        plan = cloud.infrastructure.plan(site, existing)
        inventory.encoded(plan.objects)  # what the inventory cannot hold has to fail before anything is made
        return account.name, plan

    async def pools(self, run: Run) -> tuple[str, ...]:
        """The address pools that the run before has made."""
        found = await self._accounts.estate(run, shoot_of(run).technical_id)
        return found.pools if found else ()

    async def keep(self, run: Run, account: str, plan: Plan, pools: Iterable[str]) -> None:
        owner = shoot_of(run).technical_id
        await self._accounts.keep(run, account, owner, plan.objects, plan.uses, pools)

    async def leave(self, run: Run) -> None:
        await self._accounts.leave(run, shoot_of(run).technical_id)

    async def drop(self, run: Run) -> None:
        await self._accounts.drop(run, shoot_of(run).technical_id)

    def provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        secret = self._settings.provider_secret
        return self._targets.provider(run, secret.namespace, secret.name)


def _site(run: Run, cluster: Object, account: Account) -> Site:
    spec, shoot = run.object.spec, mapping(cluster.spec.get("shoot"))
    try:
        key = base64.b64decode(str(spec.get("sshPublicKey") or ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Malformed("spec.sshPublicKey is not base64 of a text: encode the public key") from error
    of_shoot = parse(ShootSpec, shoot.get("spec"), "the Shoot in the Cluster")
    return Site(
        account=account.name,
        technical_id=shoot_of(run).technical_id,
        region=str(spec.get("region") or ""),
        config=spec.get("providerConfig"),
        networking=of_shoot.networking,
        profile=parse(
            ProfileSpec,
            mapping(cluster.spec.get("cloudProfile")).get("spec"),
            "the CloudProfile in the Cluster",
        ),
        ssh_public_key=key,
        credentials=account.shown,
        state=mapping(run.object.status.get("state")),
        status=mapping(run.object.status.get("providerStatus")),
        pools=of_shoot.provider.workers,
        annotations={name: str(value) for name, value in run.object.annotations.items()},
    )


def status(plan: Plan, before: Mapping[str, Any]) -> Status:
    """The status, as a merge patch of the one before."""
    found: Status = {
        "providerStatus": replacement(mapping(before.get("providerStatus")), plan.provider_status),
        "state": replacement(mapping(before.get("state")), plan.state),
        "egressCIDRs": list(plan.egress) or None,
    }
    if plan.networking is not None:
        found["networking"] = {name: ranges or None for name, ranges in plan.networking.items()}
    return found
