"""BackupBuckets, from the API to folders on a disk."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.api.backups.keeping import BUCKET_HOLDS, Backups, complains, fresh, keeping, reference, said, shoot
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import BACKUP_BUCKETS, SECRETS


@pytest_asyncio.fixture
async def backups(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Backups]:
    async with keeping(plane, nats, tmp_path / "backups") as made:
        yield made


@rule("BB-1", "BB-2", "D-3")
async def test_a_bucket_comes_and_goes(backups: Backups) -> None:
    garden, name = backups.garden, fresh("bucket")
    secret = await backups.secret()
    await backups.bucket(name, secret)
    found = await garden.until_ready(BACKUP_BUCKETS, name)
    generated = {"name": f"generated-bucket-{name}", "namespace": "garden"}
    assert found.status["generatedSecretRef"] == generated
    assert said(await garden.get(SECRETS, generated["name"])) == {}
    assert stat.S_IMODE(os.stat(backups.root / name).st_mode) == 0o775
    assert await backups.finalizers(secret) == (BUCKET_HOLDS,)
    backups.folder(name, "entry")
    await garden.delete(BACKUP_BUCKETS, name)
    await garden.until_gone(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []
    assert await garden.get(SECRETS, generated["name"]) is None
    assert await backups.finalizers(secret) == ()


@rule("BB-1")
async def test_a_bucket_says_where_its_secret_is_made(backups: Backups) -> None:
    client, _ = await shoot(backups)
    name, secret = fresh("bucket"), await backups.secret()
    where = {"backupbucket.extensions.gardener.cloud/generated-secret-namespace": client.namespace}
    await backups.bucket(name, secret, annotations=where)
    found = await client.until_ready(BACKUP_BUCKETS, name)
    assert found.status["generatedSecretRef"]["namespace"] == client.namespace
    assert await client.get(SECRETS, f"generated-bucket-{name}")
    # What was recorded counts, even if the annotation says something else by now.
    await client.merge(BACKUP_BUCKETS, name, {"metadata": {"annotations": dict.fromkeys(where)}})
    await client.delete(BACKUP_BUCKETS, name)
    await client.until_gone(BACKUP_BUCKETS, name)
    assert await client.get(SECRETS, f"generated-bucket-{name}") is None


async def test_a_bucket_whose_secret_has_no_place_is_an_error(backups: Backups) -> None:
    name, secret = fresh("bucket"), await backups.secret()
    where = {"backupbucket.extensions.gardener.cloud/generated-secret-namespace": "no-such-place"}
    await backups.bucket(name, secret, annotations=where)
    found = await backups.garden.until_failed(BACKUP_BUCKETS, name)
    assert "namespace no-such-place" in found.status["lastError"]["description"]
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    await backups.garden.delete(BACKUP_BUCKETS, name)
    await backups.garden.until_gone(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []
    assert await backups.finalizers(secret) == ()


@rule("D-3")
async def test_a_bucket_without_its_secret_goes(backups: Backups) -> None:
    garden, name, secret = backups.garden, fresh("bucket"), await backups.secret()
    await backups.bucket(name, secret)
    await garden.until_ready(BACKUP_BUCKETS, name)
    await garden.merge(SECRETS, secret, {"metadata": {"finalizers": None}})
    await garden.delete(SECRETS, secret)
    await garden.delete(BACKUP_BUCKETS, name)
    await garden.until_gone(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []


@rule("O-7")
async def test_a_bucket_is_never_handed_over(backups: Backups) -> None:
    garden, name, secret = backups.garden, fresh("bucket"), await backups.secret()
    await backups.bucket(name, secret)
    await garden.until_ready(BACKUP_BUCKETS, name)
    await garden.ask(BACKUP_BUCKETS, name, "migrate")
    await backups.world.quiet()
    found = await garden.get(BACKUP_BUCKETS, name)
    assert found
    assert found.annotations["gardener.cloud/operation"] == "migrate"
    assert found.finalizers == (BUCKET_HOLDS,)


async def test_a_bucket_that_is_a_link_is_left_to_a_person(backups: Backups, tmp_path: Path) -> None:
    garden, name = backups.garden, fresh("bucket")
    os.makedirs(tmp_path / "precious" / "data")
    os.symlink(tmp_path / "precious", backups.root / name)
    await backups.bucket(name, await backups.secret())
    await garden.until(BACKUP_BUCKETS, name, complains("is not followed; remove it"))
    await garden.delete(BACKUP_BUCKETS, name)
    await garden.until(BACKUP_BUCKETS, name, complains("Error deleting BackupBucket"))
    assert os.listdir(tmp_path / "precious") == ["data"]
    os.unlink(backups.root / name)
    await garden.ask(BACKUP_BUCKETS, name)
    await garden.until_gone(BACKUP_BUCKETS, name)


async def test_a_root_that_is_gone_is_a_clear_error(backups: Backups) -> None:
    name, secret = fresh("bucket"), await backups.secret()
    os.rmdir(backups.root)
    await backups.bucket(name, secret)
    found = await backups.garden.until_failed(BACKUP_BUCKETS, name)
    assert f"backup.root {backups.root} is no folder" in found.status["lastError"]["description"]
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    os.mkdir(backups.root)
    await backups.garden.ask(BACKUP_BUCKETS, name)
    await backups.garden.until_ready(BACKUP_BUCKETS, name)


@rule("P-1")
async def test_buckets_of_gardens_are_for_those_who_serve_them(backups: Backups) -> None:
    spec = {"region": "local", "secretRef": reference(await backups.secret()), "class": "garden"}
    await backups.garden.create(BACKUP_BUCKETS, fresh("bucket"), spec)
    name = fresh("bucket")
    await backups.bucket(name, await backups.secret())
    await backups.garden.until_ready(BACKUP_BUCKETS, name)
    await backups.world.quiet()
    assert os.listdir(backups.root) == [name]
