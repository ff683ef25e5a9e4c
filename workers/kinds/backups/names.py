"""What is read from the names of buckets and entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS
from workers.kinds.backups.backupfolders import checked

GENERATED_IN = "backupbucket.extensions.gardener.cloud/generated-secret-namespace"
"""Annotation: the namespace of the Secret that is made for a bucket."""

_SOURCE = "source-"


class SecretName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Entry:
    """Whose backups an entry holds."""

    technical_id: str
    """Of the Shoot: its namespace."""
    folder: str
    secret: str
    """What tells the Shoot's etcd where its backups are."""
    twin: str
    """The entry of the same Shoot on the other side of a migration."""


def entry(name: str) -> Entry:
    """`[source-]<technical id>--<uid>`, in its parts."""
    folder = name.removeprefix(_SOURCE)
    technical_id, dashes, uid = folder.rpartition("--")
    if not (technical_id and dashes and uid):
        raise Malformed(
            f"metadata.name: {name!r} does not tell a Shoot; it has to be <technical id>--<uid of the Shoot>"
        )
    prefix = _SOURCE if folder != name else ""
    twin = folder if prefix else _SOURCE + folder
    return Entry(technical_id, checked("metadata.name", folder), f"{prefix}etcd-backup", twin)


def referenced(spec: Mapping[str, Any]) -> SecretName:
    """The Secret with the credentials."""
    found = spec.get("secretRef") or {}
    for field in ("name", "namespace"):
        if not found.get(field):
            raise Malformed(f"spec.secretRef.{field} is empty: name the Secret with the bucket's credentials")
    return _checked("spec.secretRef", str(found["namespace"]), str(found["name"]))


def generated(bucket: Object) -> SecretName:
    """The Secret made for a bucket: where it was reported to be, or else where it is to be made."""
    reported = bucket.status.get("generatedSecretRef") or {}
    namespace = reported.get("namespace") or bucket.annotations.get(GENERATED_IN) or "garden"
    name = reported.get("name") or f"generated-bucket-{bucket.name}"
    return _checked(f"annotation {GENERATED_IN}", str(namespace), str(name))


def _checked(where: str, namespace: str, name: str) -> SecretName:
    """The name of a Secret that there may be. `where` is what gave it."""
    try:
        SECRETS.path(namespace, name)
    except Malformed as error:
        raise Malformed(f"{where}: {error}") from error
    return SecretName(namespace, name)
