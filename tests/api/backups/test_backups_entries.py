"""BackupEntries, from the API to what etcd is told."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.transport.connection import connected
from tests.api.backups.keeping import CREATED_BY, ENTRY_HOLDS, Backups, fresh, keeping, said, shoot
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_ENTRIES, NAMESPACES, RUNTIME, SECRETS, ObjectRef
from windowbox.settings.bussettings import Access


@pytest_asyncio.fixture
async def backups(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Backups]:
    async with keeping(plane, nats, tmp_path / "backups") as made:
        yield made


@rule("BE-2", "BE-3", "BE-4", "D-4")
async def test_an_entry_comes_and_goes(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret(key=b"value")
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    made = await client.get(SECRETS, "etcd-backup")
    expected = {"key": "value", "bucketName": "bucket", "hostPath": "/etc/gardener/local-backupbuckets"}
    assert said(made) == expected
    assert made
    assert (made.annotations, made.labels) == ({CREATED_BY: name}, {})
    assert await backups.finalizers(secret) == (ENTRY_HOLDS,)

    folder, other = backups.folder("bucket", name), backups.folder("bucket", "another")
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert (folder.exists(), other.exists()) == (False, True)
    assert await client.get(SECRETS, "etcd-backup") is None
    assert await backups.finalizers(secret) == ()


@rule("F-5")
async def test_a_forced_deletion_removes_the_backup_entry(backups: Backups) -> None:
    client, name = await shoot(backups)
    await client.cluster(metadata={"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}})
    secret = await backups.secret(key=b"value")
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    folder = backups.folder("bucket", name)
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert not folder.exists()
    assert await backups.finalizers(secret) == ()


@rule("BE-3")
async def test_what_others_put_into_the_secret_of_etcd_is_taken_out(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret(key=b"value")
    await client.secret("etcd-backup", old=b"o", bucketName=b"theirs")
    await client.merge(
        SECRETS, "etcd-backup", {"metadata": {"annotations": {"a": "b"}, "labels": {"l": "m"}}}
    )
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    made = await client.get(SECRETS, "etcd-backup")
    assert sorted(said(made)) == ["bucketName", "hostPath", "key"]
    assert made
    assert (made.annotations, made.labels) == ({CREATED_BY: name}, {})
    await backups.garden.secret(secret, renewed=b"value")
    await client.ask(BACKUP_ENTRIES, name)

    def renewed(found: Object | None) -> bool:
        return sorted(said(found)) == ["bucketName", "hostPath", "renewed"]

    await client.until(SECRETS, "etcd-backup", renewed)


@rule("BE-3")
async def test_a_workload_identity_keeps_its_token(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret(config=b"c", token=b"not-this-one")
    prefix = "workloadidentity.security.gardener.cloud/"
    labels = {
        "security.gardener.cloud/purpose": "workload-identity-token-requestor",
        f"{prefix}provider": "local",
    }
    identity = {f"{prefix}name": "wi", f"{prefix}namespace": "garden-x", f"{prefix}context-object": "{}"}
    await backups.garden.merge(SECRETS, secret, {"metadata": {"labels": labels, "annotations": identity}})
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    assert sorted(said(await client.get(SECRETS, "etcd-backup"))) == ["bucketName", "config", "hostPath"]
    # The controller that issues tokens has been there.
    renew = {f"{prefix}token-renew-timestamp": "2026-09-01T10:15:30Z"}
    token = {"data": {"token": base64.b64encode(b"t").decode()}, "metadata": {"annotations": renew}}
    await client.merge(SECRETS, "etcd-backup", token)
    await backups.garden.secret(secret, config=b"new")
    await client.ask(BACKUP_ENTRIES, name)
    await client.until(SECRETS, "etcd-backup", lambda found: said(found)["config"] == "new")
    made = await client.get(SECRETS, "etcd-backup")
    assert made
    assert said(made)["token"] == "t"
    assert made.annotations == {**identity, **renew, CREATED_BY: name}
    assert made.labels == labels


@rule("BE-4")
async def test_a_secret_of_another_entry_stays(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    theirs = {"metadata": {"annotations": {CREATED_BY: "another"}}}
    await client.merge(SECRETS, "etcd-backup", theirs)
    folder = backups.folder("bucket", name)
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert await client.get(SECRETS, "etcd-backup")
    assert not folder.exists()


@rule("BE-4")
async def test_a_secret_that_nobody_signed_goes(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    await client.merge(SECRETS, "etcd-backup", {"metadata": {"annotations": {CREATED_BY: None}}})
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert await client.get(SECRETS, "etcd-backup") is None


@rule("BE-2")
async def test_without_a_namespace_there_is_nothing_to_do(backups: Backups) -> None:
    secret = await backups.secret()
    name = f"{fresh('shoot--none')}--{uuid.uuid4()}"
    await backups.entry(name, secret)
    await backups.garden.until_ready(BACKUP_ENTRIES, name)
    assert await backups.finalizers(secret) == (ENTRY_HOLDS,)


@rule("T-6")
async def test_a_later_namespace_triggers_a_run(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with keeping(plane, nats, tmp_path / "backups", ignore_operation_annotation=True) as backups:
        client = backups.world.client(f"shoot--b--{uuid.uuid4().hex[:8]}")
        name = f"{client.namespace}--{uuid.uuid4()}"
        await backups.entry(name, await backups.secret())
        await client.until_ready(BACKUP_ENTRIES, name)
        await backups.world.quiet()
        await backups.world.kube.create(NAMESPACES, "", {"metadata": {"name": client.namespace}})
        await client.until(SECRETS, "etcd-backup", lambda found: found is not None)


@rule("BE-2")
async def test_a_namespace_that_ends_is_left_alone(backups: Backups) -> None:
    client, name = await shoot(backups)
    held = {"metadata": {"name": "holds-it", "finalizers": ["example.org/hold"]}}
    await backups.world.kube.create(SECRETS, client.namespace, held)
    await backups.world.kube.delete(NAMESPACES, "", client.namespace)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    assert await client.get(SECRETS, "etcd-backup") is None
    await client.merge(SECRETS, "holds-it", {"metadata": {"finalizers": None}})


@rule("D-4")
async def test_an_entry_without_its_secret_goes_without_a_trace_being_touched(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    folder = backups.folder("bucket", name)
    await backups.garden.merge(SECRETS, secret, {"metadata": {"finalizers": None}})
    await backups.garden.delete(SECRETS, secret)
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert folder.exists()
    assert await client.get(SECRETS, "etcd-backup")


@rule("BE-1", "BE-2", "BE-4")
async def test_both_entries_of_a_migration_keep_to_their_own(backups: Backups) -> None:
    client, name = await shoot(backups)
    source, secrets = f"source-{name}", (await backups.secret(), await backups.secret())
    await backups.entry(source, secrets[0], "old-bucket")
    await backups.entry(name, secrets[1], "new-bucket")
    for one in (source, name):
        await client.until_ready(BACKUP_ENTRIES, one)
    assert said(await client.get(SECRETS, "source-etcd-backup"))["bucketName"] == "old-bucket"
    assert said(await client.get(SECRETS, "etcd-backup"))["bucketName"] == "new-bucket"
    old, new = backups.folder("old-bucket", name), backups.folder("new-bucket", name)
    await client.delete(BACKUP_ENTRIES, source)
    await client.until_gone(BACKUP_ENTRIES, source)
    assert (old.exists(), new.exists()) == (False, True)
    assert await client.get(SECRETS, "source-etcd-backup") is None
    assert await client.get(SECRETS, "etcd-backup")


async def test_backups_in_one_bucket_outlive_the_entry_that_is_over(backups: Backups) -> None:
    client, name = await shoot(backups)
    source, secret = f"source-{name}", await backups.secret()
    for one in (source, name):
        await backups.entry(one, secret)
        await client.until_ready(BACKUP_ENTRIES, one)
    await backups.world.quiet()
    folder = backups.folder("bucket", name)
    await client.delete(BACKUP_ENTRIES, source)
    await client.until_gone(BACKUP_ENTRIES, source)
    assert folder.exists()
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert not folder.exists()
    assert await backups.finalizers(secret) == ()


async def test_backups_stay_while_the_bus_does_not_know_the_other_entry(
    backups: Backups, nats: NatsServer
) -> None:
    client, name = await shoot(backups)
    source, secret = f"source-{name}", await backups.secret()
    for one in (source, name):
        await backups.entry(one, secret)
        await client.until_ready(BACKUP_ENTRIES, one)
    await backups.world.quiet()
    folder = backups.folder("bucket", name)
    async with connected(Access(nats.url)) as bus:
        await bus.purge(streams.OBJECTS, subjects.seen(ObjectRef(RUNTIME, BACKUP_ENTRIES.id, "", name)))
    await client.delete(BACKUP_ENTRIES, source)
    await client.until_gone(BACKUP_ENTRIES, source)
    assert folder.exists()


@rule("BE-5", "D-4", "N-2")
async def test_an_entry_that_is_handed_over_keeps_its_backups(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    folder = backups.folder("bucket", name)
    await client.ask(BACKUP_ENTRIES, name, "migrate")

    def over(found: Object | None) -> bool:
        if found is None or found.finalizers or "gardener.cloud/operation" in found.annotations:
            return False
        return bool(found.last_operation["type"] == "Migrate")

    found = await client.until(BACKUP_ENTRIES, name, over)
    assert found
    assert found.last_operation["state"] == "Succeeded"
    assert found.last_operation["description"] == "Successfully migrated BackupEntry"
    assert await backups.finalizers(secret) == ()
    assert await client.get(SECRETS, "etcd-backup")
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert folder.exists()


@rule("D-4")
async def test_an_entry_without_its_secret_cannot_be_handed_over(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    await backups.garden.merge(SECRETS, secret, {"metadata": {"finalizers": None}})
    await backups.garden.delete(SECRETS, secret)
    await client.ask(BACKUP_ENTRIES, name, "migrate")
    failed = await client.until_failed(BACKUP_ENTRIES, name)
    assert failed.last_operation["type"] == "Migrate"
    assert "does not exist" in failed.status["lastError"]["description"]


@rule("BE-2")
async def test_an_adopted_entry_tells_etcd_its_location(backups: Backups) -> None:
    client, name = await shoot(backups)
    await backups.entry(name, await backups.secret(), operation="wait-for-state")
    await client.ask(BACKUP_ENTRIES, name, "restore")
    found = await client.until_ready(BACKUP_ENTRIES, name)
    assert found.last_operation["description"] == "Successfully restored BackupEntry"
    assert said(await client.get(SECRETS, "etcd-backup"))["bucketName"] == "bucket"


@pytest.mark.parametrize("bucket", ["../other", "/etc", "..", "a/b", "nul\0"])
async def test_an_entry_cannot_leave_the_root(backups: Backups, bucket: str, tmp_path: Path) -> None:
    client, name = await shoot(backups)
    precious = tmp_path / "other" / name
    os.makedirs(precious)
    secret = await backups.secret()
    await backups.entry(name, secret, bucket)
    found = await client.until_failed(BACKUP_ENTRIES, name)
    assert "spec.bucketName" in found.status["lastError"]["description"]
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert await client.get(SECRETS, "etcd-backup") is None
    assert await backups.finalizers(secret) == ()
    await client.delete(BACKUP_ENTRIES, name)
    await client.until_gone(BACKUP_ENTRIES, name)
    assert os.listdir(tmp_path / "other") == [name]
