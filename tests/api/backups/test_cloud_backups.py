"""BackupBuckets and BackupEntries of clouds: credentials, Secrets, and retention."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.api.backups import keeping
from tests.api.backups.keeping import Backups, fresh
from tests.support.cloudcredentials import CREDENTIALS, SECRET
from tests.support.rules import rule
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, SECRETS

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOR_ETCD = {
    "alicloud": {"storageEndpoint": "https://oss-somewhere.aliyuncs.com/"},
    "aws": {"region": "somewhere"},
    "gcp": {},
    "openstack": {"region": "somewhere"},
}
"""What the Secret for etcd has besides the credentials and the name of the bucket."""
CONFIG = {"apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1", "kind": "BackupBucketConfig"}
DAY = 86_400


def retention(**fields: Any) -> dict[str, Any]:
    given = {"retentionType": "bucket", **fields}
    return {"type": "gcp", "providerConfig": {**CONFIG, "immutability": given}}


def aged(backups: Backups, bucket: str, entry: str, days: float) -> None:
    """A backup that is so old."""
    file = backups.folder(bucket, entry) / "v2" / "Full-00000000"
    then = time.time() - days * DAY
    os.utime(file, (then, then))


@pytest.mark.parametrize("cloud", sorted(FOR_ETCD))
async def test_entries_get_the_credentials_and_where_the_bucket_is(backups: Backups, cloud: str) -> None:
    bucket, secret = fresh(cloud), await backups.secret(**CREDENTIALS[cloud])
    await backups.bucket(bucket, secret, {"type": cloud})
    ready = await backups.garden.until_ready(BACKUP_BUCKETS, bucket)
    assert "generatedSecretRef" not in ready.status
    client, entry = await keeping.shoot(backups)
    await backups.entry(entry, secret, bucket, type=cloud, region="somewhere")
    await client.until_ready(BACKUP_ENTRIES, entry)
    for_etcd = keeping.data(await client.get(SECRETS, "etcd-backup"))
    credentials = {name: value.decode() for name, value in CREDENTIALS[cloud].items()}
    assert for_etcd == {**credentials, "bucketName": bucket, **FOR_ETCD[cloud]}
    backups.folder(bucket, entry)
    await backups.end(BACKUP_ENTRIES, entry)
    assert os.listdir(backups.root / bucket) == []
    await backups.end(BACKUP_BUCKETS, bucket)
    assert os.listdir(backups.root) == []


@rule("AZU-X4")
async def test_a_bucket_of_azure_has_a_storage_account_of_its_own(backups: Backups) -> None:
    bucket, secret = fresh("azure"), await backups.secret(**CREDENTIALS["azure"])
    await backups.bucket(bucket, secret, {"type": "azure", "region": "chinanorth3"})
    ready = await backups.garden.until_ready(BACKUP_BUCKETS, bucket)
    generated = f"generated-bucket-{bucket}"
    assert ready.status["generatedSecretRef"] == {"namespace": "garden", "name": generated}
    content = keeping.data(await backups.garden.get(SECRETS, generated))
    assert content.keys() == {"storageAccount", "storageKey", "domain"}
    assert content["domain"] == "blob.core.chinacloudapi.cn"

    client, entry = await keeping.shoot(backups)
    await backups.entry(entry, secret, bucket, type="azure")
    failed = await client.until_failed(BACKUP_ENTRIES, entry)
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    await client.ask(BACKUP_ENTRIES, entry, spec={"secretRef": keeping.reference(generated)})
    await client.until_ready(BACKUP_ENTRIES, entry)
    for_etcd = keeping.data(await client.get(SECRETS, "etcd-backup"))
    assert for_etcd == {**content, "bucketName": bucket}
    await backups.end(BACKUP_ENTRIES, entry)
    await backups.end(BACKUP_BUCKETS, bucket)
    assert await backups.garden.get(SECRETS, generated) is None


async def test_a_bucket_needs_credentials(backups: Backups) -> None:
    bucket, secret = fresh("bad"), await backups.secret(accessKeyID=b"unlocks")
    await backups.bucket(bucket, secret, {"type": "aws"})
    failed = await backups.garden.until_failed(BACKUP_BUCKETS, bucket)
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    assert SECRET not in str(failed.raw)
    assert os.listdir(backups.root) == []
    await backups.garden.secret(secret, **CREDENTIALS["aws"])
    await backups.end(BACKUP_BUCKETS, bucket)


@rule("GCP-B3", "GCP-B4")
async def test_a_locked_retention_only_grows(backups: Backups) -> None:
    bucket, secret = fresh("gcp"), await backups.secret(**CREDENTIALS["gcp"])
    await backups.bucket(bucket, secret, retention(retentionPeriod="96h"))
    await backups.garden.until_ready(BACKUP_BUCKETS, bucket)

    async def asked(config: dict[str, Any] | None) -> str:
        """The error of a bucket with this config, or nothing."""
        await backups.garden.ask(BACKUP_BUCKETS, bucket, spec={"providerConfig": config})
        done = await backups.garden.until(
            BACKUP_BUCKETS,
            bucket,
            lambda found: (
                found is not None
                and found.status.get("observedGeneration") == found.generation
                and found.last_operation.get("state") in ("Succeeded", "Error")
            ),
        )
        assert done
        return str((done.status.get("lastError") or {}).get("description") or "")

    assert await asked(None) == ""
    assert await asked(retention(retentionPeriod="48h", locked=True)["providerConfig"]) == ""
    assert "cannot be removed" in await asked(None)
    assert "cannot be unlocked" in await asked(retention(retentionPeriod="48h")["providerConfig"])
    assert "cannot become shorter" in await asked(
        retention(retentionPeriod="24h", locked=True)["providerConfig"]
    )
    assert await asked(retention(retentionPeriod="72h", locked=True)["providerConfig"]) == ""
    await backups.end(BACKUP_BUCKETS, bucket)
    assert os.listdir(backups.root) == []


@rule("GCP-B4")
async def test_what_is_too_young_stays(backups: Backups) -> None:
    bucket, secret = fresh("gcp"), await backups.secret(**CREDENTIALS["gcp"])
    await backups.bucket(bucket, secret, retention(retentionPeriod="48h", locked=True))
    await backups.garden.until_ready(BACKUP_BUCKETS, bucket)
    client, entry = await keeping.shoot(backups)
    await backups.entry(entry, secret, bucket, type="gcp")
    await client.until_ready(BACKUP_ENTRIES, entry)
    aged(backups, bucket, entry, 1.9)
    await client.delete(BACKUP_ENTRIES, entry)
    failed = await client.until_failed(BACKUP_ENTRIES, entry)
    assert "is subject to its bucket's retention policy" in failed.status["lastError"]["description"]
    assert os.listdir(backups.root / bucket / entry / "v2") == ["Full-00000000"]
    await client.delete(BACKUP_BUCKETS, bucket)
    await client.until_failed(BACKUP_BUCKETS, bucket)
    aged(backups, bucket, entry, 2.1)
    for resource, name in ((BACKUP_ENTRIES, entry), (BACKUP_BUCKETS, bucket)):
        await client.ask(resource, name)
        await client.until_gone(resource, name)
    assert os.listdir(backups.root) == []
