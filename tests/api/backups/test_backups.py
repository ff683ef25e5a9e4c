"""What BackupBuckets and BackupEntries have in common: examples, Secrets, and runs that are repeated."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml

from tests.api.backups.keeping import (
    BUCKET_HOLDS,
    ENTRY_HOLDS,
    Backups,
    fresh,
    keeping,
    reference,
    said,
    shoot,
)
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from tools.bench.audit import WRITES
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, NAMESPACES, SECRETS
from windowbox.settings.kindsettings import BackupSettings, KindSettings
from workers import replay
from workers.core.pools import assembled

CONTRACT = Path(__file__).parents[4] / "shared" / "contract" / "extensions.md"
KINDS = ("backupbucket", "backupentry")


@pytest_asyncio.fixture
async def backups(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Backups]:
    async with keeping(plane, nats, tmp_path / "backups") as made:
        yield made


@pytest.mark.parametrize(
    ("letter", "resource", "heading"),
    [
        pytest.param("A.9", BACKUP_BUCKETS, "BackupBucket", id="A.9"),
        pytest.param("A.10", BACKUP_ENTRIES, "BackupEntry", id="A.10"),
    ],
)
async def test_the_examples_have_the_status_of_the_contract(
    backups: Backups, letter: str, resource: Any, heading: str
) -> None:
    example, wanted = _examples(letter, heading)
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
        effect = _side_effect(letter, heading)
        assert said(made) == effect["stringData"]
        assert made
        assert made.annotations == effect["metadata"]["annotations"]
    else:
        assert stat.S_IMODE(os.stat(backups.root / name).st_mode) == 0o775
    await backups.garden.delete(resource, name)
    await backups.garden.until_gone(resource, name)
    assert await backups.finalizers(secret) == ()


def _documents(letter: str, heading: str) -> list[list[Any]]:
    if not CONTRACT.exists():
        pytest.skip("the contract is not beside this repository")
    text = CONTRACT.read_text().split(f"\n## {letter} {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [list(yaml.safe_load_all(part.split("```", 1)[0])) for part in text.split("```yaml\n")[1:]]


def _examples(letter: str, heading: str) -> tuple[dict[str, Any], dict[str, Any]]:
    example, wanted = _documents(letter, heading)[0]
    return example, wanted


def _side_effect(letter: str, heading: str) -> dict[str, Any]:
    found: dict[str, Any] = _documents(letter, heading)[1][0]
    return found


def _timeless(status: Any) -> dict[str, Any]:
    last = {k: v for k, v in status["lastOperation"].items() if k != "lastUpdateTime"}
    return {**status, "lastOperation": last}


@rule("D-3", "D-4", "B.14")
async def test_a_missing_secret_is_an_error_that_says_so(backups: Backups) -> None:
    client, name = await shoot(backups)
    bucket, secret = fresh("bucket"), fresh("missing")
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


@rule("D-4", "V-11")
@pytest.mark.parametrize(
    "reference",
    [
        pytest.param({"name": "credentials"}, id="no-namespace"),
        pytest.param({"name": "a/b", "namespace": "garden"}, id="no-name-of-a-secret"),
    ],
)
async def test_what_refers_to_no_secret_can_be_deleted(backups: Backups, reference: dict[str, str]) -> None:
    garden, (_, name), bucket = backups.garden, await shoot(backups), fresh("bucket")
    spec = {"region": "local", "secretRef": reference}
    await garden.create(BACKUP_BUCKETS, bucket, spec)
    await garden.create(BACKUP_ENTRIES, name, {**spec, "bucketName": bucket})
    for resource, object in ((BACKUP_BUCKETS, bucket), (BACKUP_ENTRIES, name)):
        found = await garden.until_failed(resource, object)
        assert "spec.secretRef" in found.status["lastError"]["description"]
        await garden.delete(resource, object)
        await garden.until_gone(resource, object)


@rule("D-5", "B.15", "N-3")
async def test_a_shared_secret_is_held_until_the_last_has_gone(backups: Backups) -> None:
    garden, secret = backups.garden, await backups.secret()
    buckets = [fresh("bucket"), fresh("bucket")]
    _, entry = await shoot(backups)
    for name in buckets:
        await backups.bucket(name, secret)
        await garden.until_ready(BACKUP_BUCKETS, name)
    await backups.entry(entry, secret)
    await garden.until_ready(BACKUP_ENTRIES, entry)
    await backups.world.quiet()
    await garden.delete(BACKUP_BUCKETS, buckets[0])
    await garden.until_gone(BACKUP_BUCKETS, buckets[0])
    assert await backups.finalizers(secret) == (BUCKET_HOLDS, ENTRY_HOLDS)
    await garden.delete(BACKUP_BUCKETS, buckets[1])
    await garden.until_gone(BACKUP_BUCKETS, buckets[1])
    assert await backups.finalizers(secret) == (ENTRY_HOLDS,)
    await garden.delete(BACKUP_ENTRIES, entry)
    await garden.until_gone(BACKUP_ENTRIES, entry)
    assert await backups.finalizers(secret) == ()


async def test_objects_that_share_a_secret_go_together_without_a_pause(backups: Backups) -> None:
    secret, prefix = await backups.secret(), fresh("together")
    names = [f"{prefix}-{number}" for number in range(12)]
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
async def test_a_shared_secret_is_let_go_though_its_last_user_ran_no_deletion(backups: Backups) -> None:
    garden, secret = backups.garden, await backups.secret()
    first, last = fresh("bucket"), fresh("bucket")
    for name in (first, last):
        await backups.bucket(name, secret)
        await garden.until_ready(BACKUP_BUCKETS, name)
    await garden.delete(BACKUP_BUCKETS, first)
    await garden.until_gone(BACKUP_BUCKETS, first)
    assert await backups.finalizers(secret) == (BUCKET_HOLDS,)
    await garden.merge(BACKUP_BUCKETS, last, {"metadata": {"finalizers": []}})
    await garden.delete(BACKUP_BUCKETS, last)
    await eventually(lambda: released(backups, secret))


async def released(backups: Backups, secret: str) -> bool:
    return await backups.finalizers(secret) == ()


@rule("N-1")
async def test_clients_that_write_the_secret_all_the_time_do_no_harm(backups: Backups) -> None:
    client, name = await shoot(backups)
    secret = await backups.secret()

    async def keep_writing() -> None:
        number = 0
        while True:
            number += 1
            patch = {"metadata": {"annotations": {"number": str(number)}}}
            await backups.garden.merge(SECRETS, secret, patch)

    writing = asyncio.create_task(keep_writing())
    try:
        await backups.entry(name, secret)
        await client.until_ready(BACKUP_ENTRIES, name)
        await client.delete(BACKUP_ENTRIES, name)
        await client.until_gone(BACKUP_ENTRIES, name)
    finally:
        writing.cancel()
        await asyncio.wait([writing])
    found = await backups.garden.get(SECRETS, secret)
    assert found
    assert found.finalizers == ()
    assert int(found.annotations["number"]) > 0


async def test_a_second_run_writes_nothing_but_its_report(backups: Backups) -> None:
    client, entry = await shoot(backups)
    bucket, secret = fresh("bucket"), await backups.secret(key=b"value")
    await backups.bucket(bucket, secret)
    await backups.entry(entry, secret)
    both = ((BACKUP_BUCKETS, bucket), (BACKUP_ENTRIES, entry))
    for resource, name in both:
        await client.until_ready(resource, name)
    await backups.world.quiet()
    log = backups.world.audit()
    for resource, name in both:
        await client.ask(resource, name)
        await client.until_ready(resource, name)
    await backups.world.quiet()
    written = {what: count for what, count in log.requests().items() if what.split()[0] in WRITES}
    assert written == {
        "patch backupbuckets": 1,
        "patch backupbuckets/status": 1,
        "patch backupentries": 1,
        "patch backupentries/status": 1,
    }


async def test_what_was_asked_for_while_nobody_was_there_is_done(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "backups"
    names = [fresh("bucket") for _ in range(3)]
    async with keeping(plane, nats, root) as backups:
        secret = await backups.secret()
        for name in names[:2]:
            await backups.bucket(name, secret)
            await backups.garden.until_ready(BACKUP_BUCKETS, name)
            backups.folder(name, "entry")
    await backups_of(plane, names, secret)
    async with keeping(plane, nats, root) as backups:
        await backups.garden.until_gone(BACKUP_BUCKETS, names[0])
        await backups.garden.until_ready(BACKUP_BUCKETS, names[2])
        assert sorted(os.listdir(root)) == sorted(names[1:])
        assert await backups.finalizers(secret) == (BUCKET_HOLDS,)


async def backups_of(plane: ControlPlane, names: list[str], secret: str) -> None:
    """Of three buckets the first is deleted, and the last is made."""
    async with kube.from_file(plane.kubeconfig) as api:
        await api.delete(BACKUP_BUCKETS, "", names[0])
        spec = {"type": "local", "region": "local", "secretRef": reference(secret)}
        head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "BackupBucket"}
        await api.create(BACKUP_BUCKETS, "", {**head, "metadata": {"name": names[2]}, "spec": spec})


async def test_recorded_runs_do_the_same_again_and_hold_no_secrets(backups: Backups) -> None:
    began = datetime.now(UTC)
    client, entry = await shoot(backups)
    bucket, secret = fresh("bucket"), await backups.secret(key=b"whispered")
    await backups.bucket(bucket, secret)
    await client.until_ready(BACKUP_BUCKETS, bucket)
    await backups.entry(entry, secret, bucket)
    await client.until_ready(BACKUP_ENTRIES, entry)
    bad = f"{client.namespace}--bad"
    await backups.entry(bad, secret, "../bucket")
    await client.until_failed(BACKUP_ENTRIES, bad)
    for resource, name in ((BACKUP_ENTRIES, bad), (BACKUP_ENTRIES, entry), (BACKUP_BUCKETS, bucket)):
        await client.delete(resource, name)
        await client.until_gone(resource, name)
    await backups.world.quiet()
    recording = await backups.world.recorded(began, *KINDS)
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 6
    told = "".join(run.model_dump_json() for run in recording.runs)
    assert "whispered" not in told
    assert base64.b64encode(b"whispered").decode() not in told


@pytest.mark.parametrize("pool", KINDS)
async def test_a_worker_without_the_disk_leaves_backups_to_others(pool: str, tmp_path: Path) -> None:
    for settings in (BackupSettings(), BackupSettings(root=tmp_path, host="another.example.org")):
        common = SimpleNamespace(kinds=KindSettings(backup=settings))
        assert await assembled(cast(Any, common), pool) is None
