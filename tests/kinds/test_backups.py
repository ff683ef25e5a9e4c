"""BackupBuckets and BackupEntries, from the API to folders on a disk."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import stat
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from bench.audit import WRITES
from tests.kinds.kindworld import Client, KindWorld, kind_world
from tests.natsserver import NatsServer
from tests.rules import rule
from tests.servers import ControlPlane
from windowbox.errors import Conflict
from windowbox.models.kindsettings import BackupSettings, KindSettings
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, NAMESPACES, SECRETS

CONTRACT = Path(__file__).parents[3] / "shared" / "contract" / "extensions.md"
POOLS = ("backupbucket", "backupentry")
BUCKET_HOLDS = "extensions.gardener.cloud/backupbucket"
ENTRY_HOLDS = "extensions.gardener.cloud/backupentry"
CREATED_BY = "backup.gardener.cloud/created-by"


@dataclass
class Backups:
    """The world, the disk, and a client at work in `garden`."""

    world: KindWorld
    root: Path
    garden: Client

    async def secret(self, **data: bytes) -> str:
        name = f"credentials-{uuid.uuid4().hex[:8]}"
        await self.garden.secret(name, **data)
        return name

    async def bucket(self, name: str, secret: str, **metadata: Any) -> None:
        spec = {"region": "local", "secretRef": reference(secret)}
        await self.garden.create(BACKUP_BUCKETS, name, spec, **metadata)

    async def entry(
        self, name: str, secret: str, bucket: str = "bucket", operation: str = "reconcile"
    ) -> None:
        spec = {"region": "local", "bucketName": bucket, "secretRef": reference(secret)}
        await self.garden.create(BACKUP_ENTRIES, name, spec, operation=operation)

    async def finalizers(self, secret: str) -> tuple[str, ...] | None:
        found = await self.garden.get(SECRETS, secret)
        return found.finalizers if found else None

    def folder(self, *path: str) -> Path:
        """A folder with a backup in it."""
        made = self.root.joinpath(*path)
        (made / "v2").mkdir(parents=True, exist_ok=True)
        (made / "v2" / "Full-00000000").write_text("snapshot")
        return made


@pytest_asyncio.fixture
async def backups(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Backups]:
    root = tmp_path / "backups"
    os.mkdir(root)
    kinds = KindSettings(backup=BackupSettings(root=root))
    async with kind_world(plane, nats, *POOLS, kinds=kinds) as world:
        garden = world.client("garden")
        with contextlib.suppress(Conflict):
            await world.kube.create(NAMESPACES, "", {"metadata": {"name": "garden"}})
        yield Backups(world, root, garden)


def reference(secret: str, namespace: str = "garden") -> dict[str, str]:
    return {"name": secret, "namespace": namespace}


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def shoot(backups: Backups) -> tuple[Client, str]:
    """A Shoot's namespace, and the name of its entry."""
    namespace = f"shoot--b--{uuid.uuid4().hex[:8]}"
    await backups.world.kube.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    return backups.world.client(namespace), f"{namespace}--{uuid.uuid4()}"


def said(found: Object | None) -> dict[str, str]:
    """The data of a Secret."""
    assert found
    return {k: base64.b64decode(v).decode() for k, v in (found.raw.get("data") or {}).items()}


def complains(text: str) -> Any:
    def holds(found: Object | None) -> bool:
        error = found.status.get("lastError") if found else None
        return bool(error and text in error["description"])

    return holds


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
    assert await backups.finalizers(secret) in (
        (BUCKET_HOLDS, ENTRY_HOLDS),
        (ENTRY_HOLDS, BUCKET_HOLDS),
    )


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
async def test_an_entry_that_is_taken_over_tells_etcd_where_its_backups_are(backups: Backups) -> None:
    client, name = await shoot(backups)
    await backups.entry(name, await backups.secret(), operation="wait-for-state")
    await client.ask(BACKUP_ENTRIES, name, "restore")
    found = await client.until_ready(BACKUP_ENTRIES, name)
    assert found.last_operation["description"] == "Successfully restored BackupEntry"
    assert said(await client.get(SECRETS, "etcd-backup"))["bucketName"] == "bucket"


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
