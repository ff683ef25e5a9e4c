"""Buckets and entries of clouds: their credentials, and what they have besides those of type local."""

from __future__ import annotations

from clouds import table
from clouds.frame.services.backups import Backups
from windowbox.clients.kubernetes.apiresponses import UNAUTHENTICATED
from windowbox.errors import PermanentError
from windowbox.models.clouds import WITH_BACKUPS
from windowbox.models.objects import Object, mapping
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.actuators import Run
from workers.kinds.backups import backupsecrets
from workers.kinds.backups.backupsecrets import SecretName


def backups_of(object: Object) -> Backups | None:
    """How the object's cloud keeps backups; None for type local."""
    type_ = object.spec.get("type")
    if type_ not in WITH_BACKUPS:
        return None
    found = table.cloud(type_).backups
    assert found  # the clouds of all types have it
    return found


async def call(run: Run, accounts: CloudAccounts) -> None:
    """Call the object's cloud, if it has one. An error if its Secret has no credentials.

    Entries of clouds that generate Secrets have those: they tell no account.
    """
    backups = backups_of(run.object)
    if backups is None or (backups.entry_keys and "bucketName" in run.object.spec):
        return
    secret = backupsecrets.referenced(run.object.spec)
    cloud = table.cloud(run.object.spec["type"])
    account = await accounts.account(run, cloud, secret.namespace, secret.name)
    await accounts.check(run, account.name, "backup")


def check_generated(backups: Backups | None, source: SecretName, secret: Object) -> None:
    """An error if an entry's Secret is not the generated one, of a cloud that generates it."""
    data = mapping(secret.raw.get("data"))
    if backups and (missing := [key for key in backups.entry_keys if not data.get(key)]):
        raise PermanentError(
            f"Secret {source}: {' and '.join(missing)} missing: name the generated Secret of the bucket",
            codes=(UNAUTHENTICATED,),
        )
