"""BackupEntries, from the API to the configuration of etcd."""

from __future__ import annotations

from typing import Any

import pytest

from bus import streams, subjects
from bus.transport.connection import connected
from tests.api.backups import keeping
from tests.api.backups.keeping import CREATED_BY, ENTRY_HOLDS, Backups
from tests.support.cases import cases
from tests.support.kindworld import Client
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_ENTRIES, NAMESPACES, RUNTIME, SECRETS, ObjectRef
from windowbox.settings.bussettings import Access

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORCED = {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}


@pytest.mark.parametrize(
    "forced", [pytest.param({}, id="BE-2+BE-3+BE-4+D-4"), pytest.param(FORCED, id="F-5")]
)
async def test_an_entry_comes_and_goes(backups: Backups, forced: dict[str, Any]) -> None:
    client, name = await keeping.shoot(backups)
    await client.cluster(metadata=forced)
    secret = await backups.secret(key=b"value")
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    made = await client.get(SECRETS, "etcd-backup")
    expected = {"key": "value", "bucketName": "bucket", "hostPath": "/etc/gardener/local-backupbuckets"}
    assert keeping.data(made) == expected
    assert made
    assert (made.annotations, made.labels) == ({CREATED_BY: name}, {})
    assert await backups.finalizers(secret) == (ENTRY_HOLDS,)

    folder, other = backups.folder("bucket", name), backups.folder("bucket", "another")
    await backups.end(BACKUP_ENTRIES, name)
    assert (folder.exists(), other.exists()) == (False, True)
    assert await client.get(SECRETS, "etcd-backup") is None
    assert await backups.finalizers(secret) == ()


@rule("BE-3")
async def test_foreign_fields_of_the_secret_of_etcd_are_removed(backups: Backups) -> None:
    client, name = await keeping.shoot(backups)
    secret = await backups.secret(key=b"value")
    await client.secret("etcd-backup", old=b"o", bucketName=b"theirs")
    await client.merge(
        SECRETS, "etcd-backup", {"metadata": {"annotations": {"a": "b"}, "labels": {"l": "m"}}}
    )
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    made = await client.get(SECRETS, "etcd-backup")
    assert sorted(keeping.data(made)) == ["bucketName", "hostPath", "key"]
    assert made
    assert (made.annotations, made.labels) == ({CREATED_BY: name}, {})
    await backups.garden.secret(secret, renewed=b"value")
    await client.ask(BACKUP_ENTRIES, name)

    def renewed(found: Object | None) -> bool:
        return sorted(keeping.data(found)) == ["bucketName", "hostPath", "renewed"]

    await client.until(SECRETS, "etcd-backup", renewed)


@cases("creator stays", ("BE-4-of-another-entry", "another", True), ("BE-4-of-nobody", None, False))
async def test_only_a_secret_of_another_entry_stays(
    backups: Backups, creator: str | None, stays: bool
) -> None:
    client, name, _ = await backups.ready_entry()
    await client.merge(SECRETS, "etcd-backup", {"metadata": {"annotations": {CREATED_BY: creator}}})
    folder = backups.folder("bucket", name)
    await backups.end(BACKUP_ENTRIES, name)
    assert bool(await client.get(SECRETS, "etcd-backup")) is stays
    assert not folder.exists()


@rule("BE-2")
async def test_a_namespace_that_ends_is_left_alone(backups: Backups) -> None:
    client, name = await keeping.shoot(backups)
    held = {"metadata": {"name": "holds-it", "finalizers": ["example.org/hold"]}}
    await backups.world.kube.create(SECRETS, client.namespace, held)
    await backups.world.kube.delete(NAMESPACES, "", client.namespace)
    secret = await backups.secret()
    await backups.entry(name, secret)
    await client.until_ready(BACKUP_ENTRIES, name)
    assert await client.get(SECRETS, "etcd-backup") is None
    await client.merge(SECRETS, "holds-it", {"metadata": {"finalizers": None}})


async def without_its_secret(backups: Backups) -> tuple[Client, str]:
    """An entry that was ready before its Secret went."""
    client, name, secret = await backups.ready_entry()
    await backups.garden.merge(SECRETS, secret, {"metadata": {"finalizers": None}})
    await backups.garden.delete(SECRETS, secret)
    return client, name


@rule("D-4")
async def test_an_entry_without_its_secret_is_deleted(backups: Backups) -> None:
    client, name = await without_its_secret(backups)
    folder = backups.folder("bucket", name)
    await backups.end(BACKUP_ENTRIES, name)
    assert folder.exists()
    assert await client.get(SECRETS, "etcd-backup")


@rule("D-4")
async def test_an_entry_without_its_secret_is_not_migrated(backups: Backups) -> None:
    client, name = await without_its_secret(backups)
    await client.ask(BACKUP_ENTRIES, name, "migrate")
    failed = await client.until_failed(BACKUP_ENTRIES, name)
    assert failed.last_operation["type"] == "Migrate"
    assert "does not exist" in failed.status["lastError"]["description"]


@rule("BE-1", "BE-2", "BE-4")
async def test_both_entries_of_a_migration_keep_to_their_own(backups: Backups) -> None:
    client, name = await keeping.shoot(backups)
    source, secrets = f"source-{name}", (await backups.secret(), await backups.secret())
    await backups.entry(source, secrets[0], "old-bucket")
    await backups.entry(name, secrets[1], "new-bucket")
    for one in (source, name):
        await client.until_ready(BACKUP_ENTRIES, one)
    assert keeping.data(await client.get(SECRETS, "source-etcd-backup"))["bucketName"] == "old-bucket"
    assert keeping.data(await client.get(SECRETS, "etcd-backup"))["bucketName"] == "new-bucket"
    old, new = backups.folder("old-bucket", name), backups.folder("new-bucket", name)
    await backups.end(BACKUP_ENTRIES, source)
    assert (old.exists(), new.exists()) == (False, True)
    assert await client.get(SECRETS, "source-etcd-backup") is None
    assert await client.get(SECRETS, "etcd-backup")


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown-to-the-bus"])
async def test_backups_in_one_bucket_outlive_the_source_entry(backups: Backups, known: bool) -> None:
    client, name, secret = await backups.ready_entry()
    source = f"source-{name}"
    await backups.entry(source, secret)
    await client.until_ready(BACKUP_ENTRIES, source)
    await backups.world.quiet()
    folder = backups.folder("bucket", name)
    if not known:
        async with connected(Access(backups.world.nats.url)) as bus:
            await bus.purge(streams.OBJECTS, subjects.seen(ObjectRef(RUNTIME, BACKUP_ENTRIES.id, "", name)))
    await backups.end(BACKUP_ENTRIES, source)
    assert folder.exists()
    await backups.end(BACKUP_ENTRIES, name)
    assert not folder.exists()
    assert await backups.finalizers(secret) == ()


@rule("BE-5", "D-4")
async def test_a_migrated_entry_keeps_its_backups_when_deleted(backups: Backups) -> None:
    client, name, secret = await backups.ready_entry()
    folder = backups.folder("bucket", name)
    await client.ask(BACKUP_ENTRIES, name, "migrate")
    await client.until(BACKUP_ENTRIES, name, lambda found: bool(found and not found.finalizers))
    assert await backups.finalizers(secret) == ()
    assert await client.get(SECRETS, "etcd-backup")
    await backups.end(BACKUP_ENTRIES, name)
    assert folder.exists()
