"""What names, references and Secrets of backups say: pure functions."""

from __future__ import annotations

import base64
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import BackupSettings, KindSettings
from workers.kinds.backups import backupsecrets, backupspool, secretsharing
from workers.kinds.backups.backupsecrets import Content, Entry, SecretName
from workers.kinds.backups.secretsharing import Share

UID = "5b0c7e52-6d1f-4a0e-9a53-1d2f5c7a9e10"
ID = "shoot--local--local"
FINALIZER = "extensions.gardener.cloud/backupentry"
WI = "workloadidentity.security.gardener.cloud/"
PURPOSE = {"security.gardener.cloud/purpose": "workload-identity-token-requestor"}

PLACE = {"bucketName": "bucket", "hostPath": "/mnt"}


@cases(
    "name, entry",
    {
        "BE-1-ordinary": (f"{ID}--{UID}", Entry(ID, f"{ID}--{UID}", "etcd-backup", f"source-{ID}--{UID}")),
        "BE-1-source": (
            f"source-{ID}--{UID}",
            Entry(ID, f"{ID}--{UID}", "source-etcd-backup", f"{ID}--{UID}"),
        ),
        "BE-1-one-prefix-only": (
            "source-source-a--u",
            Entry("source-a", "source-a--u", "source-etcd-backup", "source-a--u"),
        ),
    },
)
def test_the_name_of_an_entry_names_its_shoot(name: str, entry: Entry) -> None:
    assert backupsecrets.entry(name) == entry


@pytest.mark.parametrize("name", ["nodashes", "--uid", "source-", "shoot--"])
def test_a_name_without_a_shoot_is_malformed(name: str) -> None:
    with pytest.raises(Malformed, match=r"metadata\.name"):
        backupsecrets.entry(name)


@cases(
    "status, annotations, secret",
    {
        "BB-1-default": ({}, {}, ("garden", "generated-bucket-b")),
        "BB-1-annotated": ({}, {backupsecrets.GENERATED_IN: "other"}, ("other", "generated-bucket-b")),
        "BB-1-reported": (
            {"generatedSecretRef": {"name": "n", "namespace": "first"}},
            {backupsecrets.GENERATED_IN: "other"},
            ("first", "n"),
        ),
    },
)
def test_where_the_generated_secret_is(
    status: dict[str, Any], annotations: dict[str, str], secret: tuple[str, str]
) -> None:
    bucket = Object({"metadata": {"name": "b", "annotations": annotations}, "status": status})
    assert backupsecrets.generated(bucket) == secret


@pytest.mark.parametrize("reference", [None, {}, {"name": "a"}, {"namespace": "b"}])
def test_a_reference_that_leads_nowhere_is_malformed(reference: Any) -> None:
    with pytest.raises(Malformed, match=r"spec\.secretRef\.name"):
        backupsecrets.referenced({"secretRef": reference})


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "a?b=c"])
def test_an_invalid_name_of_a_secret_is_malformed(name: str) -> None:
    for reference in ({"name": name, "namespace": "garden"}, {"name": "a", "namespace": name}):
        with pytest.raises(Malformed, match=r"spec\.secretRef: .* cannot be a name"):
            backupsecrets.referenced({"secretRef": reference})
    with pytest.raises(Malformed, match=r"generated-secret-namespace: .* cannot be a name"):
        backupsecrets.generated(
            Object({"metadata": {"name": "b", "annotations": {backupsecrets.GENERATED_IN: name}}})
        )


def encoded(**data: str) -> dict[str, str]:
    return {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}


def secret(
    data: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    head = {"uid": "u", "resourceVersion": "7", "annotations": annotations or {}, "labels": labels or {}}
    return Object({"metadata": head, "data": data or {}})


OURS = encoded(bucketName="bucket", hostPath="/mnt")
BY = {"backup.gardener.cloud/created-by": "entry"}
IDENTITY = {f"{WI}name": "wi", f"{WI}namespace": "garden-x"}
CONTEXT = {f"{WI}context-object": "{}"}
LABELS = {**PURPOSE, f"{WI}provider": "local"}


@cases(
    "given, found, wanted",
    {
        "BE-2-no-data": (secret(), None, Content(OURS, BY, {})),
        "BE-3-static": (
            secret(encoded(key="k", bucketName="theirs")),
            secret(encoded(old="o"), {"foreign": "a"}, {"foreign": "l"}),
            Content({**encoded(key="k"), **OURS}, BY, {}),
        ),
        "BE-3-not-copied": (secret({}, {"foreign": "a"}, {"foreign": "l"}), None, Content(OURS, BY, {})),
        "BE-3-identity": (
            secret(
                encoded(config="c", token="other", more="m"),
                {**IDENTITY, **CONTEXT, "foreign": "a", f"{WI}token-renew-timestamp": "theirs"},
                {**LABELS, "foreign": "l"},
            ),
            None,
            Content({**encoded(config="c"), **OURS}, {**IDENTITY, **CONTEXT, **BY}, LABELS),
        ),
        "BE-3-identity-keeps-its-token": (
            secret(encoded(config="c"), IDENTITY, LABELS),
            secret(
                encoded(token="t", old="o"),
                {f"{WI}token-renew-timestamp": "later", f"{WI}name": "former"},
                {"foreign": "l"},
            ),
            Content(
                {**encoded(config="c", token="t"), **OURS},
                {**IDENTITY, f"{WI}token-renew-timestamp": "later", **BY},
                LABELS,
            ),
        ),
    },
)
def test_the_content_of_the_secret_of_etcd(given: Object, found: Object | None, wanted: Content) -> None:
    assert backupsecrets.content("entry", PLACE, given, found) == wanted


@cases(
    "annotations, labels, missing",
    {
        "BE-3-no-name": ({f"{WI}namespace": "g"}, LABELS, f"annotation {WI}name"),
        "BE-3-no-namespace": ({f"{WI}name": "n"}, LABELS, f"annotation {WI}namespace"),
        "BE-3-no-provider": (IDENTITY, PURPOSE, f"label {WI}provider"),
    },
)
def test_an_identity_that_is_incomplete_is_named(
    annotations: dict[str, str], labels: dict[str, str], missing: str
) -> None:
    with pytest.raises(Malformed, match=missing):
        backupsecrets.content("entry", PLACE, secret({}, annotations, labels), None)


@cases(
    "found, patch",
    {
        "as-wanted": (secret(OURS, BY), None),
        "BE-3-what-is-not-wanted-goes": (
            secret({**OURS, "old": "b28="}, {**BY, "foreign": "a"}, {"foreign": "l"}),
            {
                "data": {"old": None},
                "metadata": {
                    "uid": "u",
                    "resourceVersion": "7",
                    "annotations": {"foreign": None},
                    "labels": {"foreign": None},
                },
            },
        ),
        "BE-2-nobody-signed": (
            secret(OURS),
            {"metadata": {"uid": "u", "resourceVersion": "7", "annotations": BY}},
        ),
    },
)
def test_the_patch_to_the_wanted_content(found: Object, patch: dict[str, Any] | None) -> None:
    assert backupsecrets.patch(Content(OURS, BY, {}), found) == patch


def going(since: str, uid: str = "a", *, held: bool = True) -> Object:
    finalizers = [FINALIZER] if held else []
    return Object({"metadata": {"deletionTimestamp": since, "uid": uid, "finalizers": finalizers}})


def staying(uid: str = "z", *, held: bool = True, **status: Any) -> Object:
    metadata = {"uid": uid, "finalizers": [FINALIZER] if held else []}
    return Object({"metadata": metadata, "status": status})


def migrating(since: str) -> Object:
    annotations = {"gardener.cloud/operation": "migrate", "gardener.cloud/timestamp": since}
    return Object({"metadata": {"annotations": annotations, "uid": "m", "finalizers": [FINALIZER]}})


MIGRATED: dict[str, Any] = {"lastOperation": {"type": "Migrate", "state": "Succeeded"}}


@cases(
    "others, share",
    {
        "D-5-the-only-one": ([], Share.RELEASE),
        "D-5-another-stays": ([staying()], Share.LEAVE),
        "D-5-another-has-just-come": ([staying(held=False)], Share.LEAVE),
        "D-5-another-was-handed-over": ([staying(held=False, **MIGRATED)], Share.RELEASE),
        "D-5-another-began-to-go-earlier": ([going("09:00")], Share.WAIT),
        "D-5-one-goes-one-stays": ([going("09:00"), staying()], Share.LEAVE),
        "D-5-another-began-to-go-later": ([going("11:00")], Share.LEAVE),
        "D-5-at-once-and-before-us": ([going("10:00", "0")], Share.WAIT),
        "D-5-at-once-and-after-us": ([going("10:00", "z")], Share.LEAVE),
        "D-5-another-is-as-good-as-gone": ([going("09:00", held=False)], Share.RELEASE),
        "D-5-another-is-handed-over": ([migrating("09:00")], Share.WAIT),
    },
)
def test_the_last_takes_the_finalizer_off(others: list[Object], share: Share) -> None:
    assert secretsharing.share(going("10:00", "m"), others, FINALIZER) is share


@cases(
    "settings, here",
    {
        "B.16-no-root": ({}, False),
        "B.16-any-host-with-a-root": ({"root": "/backups"}, True),
        "B.16-this-host": ({"root": "/backups", "host": socket.gethostname()}, True),
        "B.16-another-host": ({"root": "/backups", "host": f"not-{socket.gethostname()}"}, False),
    },
)
def test_workers_keep_backups_where_the_disk_is(settings: dict[str, Any], here: bool) -> None:
    common = SimpleNamespace(kinds=KindSettings(backup=BackupSettings(**settings)))
    assert backupspool.enabled(cast(Any, common)) is here


def test_a_secret_is_named_with_its_namespace() -> None:
    assert str(SecretName("garden", "bucket")) == "garden/bucket"
