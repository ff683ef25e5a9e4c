"""BackupBuckets, and what they share with BackupEntries: examples, and the finalizers of their Secrets."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.backups import keeping
from tests.api.backups.keeping import BUCKET_HOLDS, ENTRY_HOLDS, Backups
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, NAMESPACES, SECRETS

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTRACT = Path(__file__).parents[4] / "shared" / "contract" / "extensions.md"


@cases(
    "letter resource heading",
    ("A.9", "A.9", BACKUP_BUCKETS, "BackupBucket"),
    ("A.10", "A.10", BACKUP_ENTRIES, "BackupEntry"),
)
async def test_the_examples_have_the_status_of_the_contract(
    backups: Backups, letter: str, resource: Any, heading: str
) -> None:
    example, wanted = _documents(letter, heading)[0]
    name, secret = example["metadata"]["name"], example["spec"]["secretRef"]["name"]
    shoot_namespace = {"metadata": {"name": "shoot--local--local"}}
    if await backups.garden.get(NAMESPACES, "shoot--local--local") is None:
        await backups.world.kube.create(NAMESPACES, "", shoot_namespace)
    await backups.garden.secret(secret)
    await backups.world.kube.create(resource, "", example)
    found = await backups.garden.until_ready(resource, name)
    assert found.spec == example["spec"]
    assert _timeless(found.status) == _timeless(wanted["status"])
    for field in ("name", "generation", "finalizers", "annotations"):
        assert found.metadata[field] == wanted["metadata"][field]
    assert await backups.finalizers(secret) == tuple(wanted["metadata"]["finalizers"])
    if resource is BACKUP_ENTRIES:
        there = backups.world.client("shoot--local--local")
        made = await there.get(SECRETS, "etcd-backup")
        [effect] = _documents(letter, heading)[1]
        assert keeping.data(made) == effect["stringData"]
        assert made
        assert made.annotations == effect["metadata"]["annotations"]
    else:
        assert stat.S_IMODE(os.stat(backups.root / name).st_mode) == 0o775
    await backups.end(resource, name)
    assert await backups.finalizers(secret) == ()


def _documents(letter: str, heading: str) -> list[list[Any]]:
    if not CONTRACT.exists():
        pytest.skip("the contract is not beside this repository")
    text = CONTRACT.read_text().split(f"\n## {letter} {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [list(yaml.safe_load_all(part.split("```", 1)[0])) for part in text.split("```yaml\n")[1:]]


def _timeless(status: Any) -> dict[str, Any]:
    last = {k: v for k, v in status["lastOperation"].items() if k != "lastUpdateTime"}
    return {**status, "lastOperation": last}


@rule("D-3", "D-4", "B.14")
async def test_a_missing_secret_is_reported(backups: Backups) -> None:
    client, name = await keeping.shoot(backups)
    bucket, secret = keeping.fresh("bucket"), keeping.fresh("missing")
    await backups.bucket(bucket, secret)
    await backups.entry(name, secret)
    for resource, object in ((BACKUP_BUCKETS, bucket), (BACKUP_ENTRIES, name)):
        found = await client.until_failed(resource, object)
        assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
        assert f"Secret garden/{secret} does not exist" in found.status["lastError"]["description"]
    assert os.listdir(backups.root) == []
    assert await client.get(SECRETS, "etcd-backup") is None
    await backups.garden.secret(secret)
    for resource, object in ((BACKUP_BUCKETS, bucket), (BACKUP_ENTRIES, name)):
        await client.ask(resource, object)
        await client.until_ready(resource, object)
    assert await backups.finalizers(secret) in ((BUCKET_HOLDS, ENTRY_HOLDS), (ENTRY_HOLDS, BUCKET_HOLDS))


@rule("D-5", "B.15", "N-3")
async def test_a_shared_secret_is_held_until_the_last_has_gone(backups: Backups) -> None:
    garden, secret = backups.garden, await backups.secret()
    buckets = [keeping.fresh("bucket"), keeping.fresh("bucket")]
    _, entry = await keeping.shoot(backups)
    for name in buckets:
        await backups.bucket(name, secret)
        await garden.until_ready(BACKUP_BUCKETS, name)
    await backups.entry(entry, secret)
    await garden.until_ready(BACKUP_ENTRIES, entry)
    await backups.world.quiet()
    await backups.end(BACKUP_BUCKETS, buckets[0])
    assert await backups.finalizers(secret) == (BUCKET_HOLDS, ENTRY_HOLDS)
    await backups.end(BACKUP_BUCKETS, buckets[1])
    assert await backups.finalizers(secret) == (ENTRY_HOLDS,)
    await backups.end(BACKUP_ENTRIES, entry)
    assert await backups.finalizers(secret) == ()


async def test_buckets_that_share_a_secret_are_deleted_at_once(backups: Backups) -> None:
    secret, prefix = await backups.secret(), keeping.fresh("together")
    names = [f"{prefix}-{number}" for number in range(6)]
    for name in names:
        await backups.bucket(name, secret)
    for name in names:
        await backups.garden.until_ready(BACKUP_BUCKETS, name)
    begun = time.monotonic()
    await asyncio.gather(*(backups.garden.delete(BACKUP_BUCKETS, name) for name in names))
    for name in names:
        await backups.garden.until_gone(BACKUP_BUCKETS, name)
    # Two of the same second may have left it to each other: then who was the last looks again.
    await eventually(lambda: released(backups, secret))
    assert time.monotonic() - begun < 25  # each pause is one of 30 s


@rule("D-5")
async def test_a_secret_is_released_though_its_last_user_ran_no_deletion(backups: Backups) -> None:
    garden, secret = backups.garden, await backups.secret()
    first, last = keeping.fresh("bucket"), keeping.fresh("bucket")
    for name in (first, last):
        await backups.bucket(name, secret)
        await garden.until_ready(BACKUP_BUCKETS, name)
    await backups.end(BACKUP_BUCKETS, first)
    assert await backups.finalizers(secret) == (BUCKET_HOLDS,)
    await garden.merge(BACKUP_BUCKETS, last, {"metadata": {"finalizers": []}})
    await garden.delete(BACKUP_BUCKETS, last)
    await eventually(lambda: released(backups, secret))


async def released(backups: Backups, secret: str) -> bool:
    return await backups.finalizers(secret) == ()


@rule("BB-1", "BB-2", "D-3")
async def test_a_bucket_comes_and_goes(backups: Backups) -> None:
    garden, name = backups.garden, keeping.fresh("bucket")
    secret = await backups.secret()
    await backups.bucket(name, secret)
    found = await garden.until_ready(BACKUP_BUCKETS, name)
    generated = {"name": f"generated-bucket-{name}", "namespace": "garden"}
    assert found.status["generatedSecretRef"] == generated
    assert keeping.data(await garden.get(SECRETS, generated["name"])) == {}
    assert stat.S_IMODE(os.stat(backups.root / name).st_mode) == 0o775
    assert await backups.finalizers(secret) == (BUCKET_HOLDS,)
    backups.folder(name, "entry")
    await backups.end(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []
    assert await garden.get(SECRETS, generated["name"]) is None
    assert await backups.finalizers(secret) == ()


async def test_a_generated_secret_without_its_namespace_is_an_error(backups: Backups) -> None:
    name, secret = keeping.fresh("bucket"), await backups.secret()
    where = {"backupbucket.extensions.gardener.cloud/generated-secret-namespace": "no-such-place"}
    await backups.bucket(name, secret, annotations=where)
    found = await backups.garden.until_failed(BACKUP_BUCKETS, name)
    assert "namespace no-such-place" in found.status["lastError"]["description"]
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    await backups.end(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []
    assert await backups.finalizers(secret) == ()


@rule("D-3")
async def test_a_bucket_without_its_secret_goes(backups: Backups) -> None:
    garden, name, secret = backups.garden, keeping.fresh("bucket"), await backups.secret()
    await backups.bucket(name, secret)
    await garden.until_ready(BACKUP_BUCKETS, name)
    await garden.merge(SECRETS, secret, {"metadata": {"finalizers": None}})
    await garden.delete(SECRETS, secret)
    await backups.end(BACKUP_BUCKETS, name)
    assert os.listdir(backups.root) == []
