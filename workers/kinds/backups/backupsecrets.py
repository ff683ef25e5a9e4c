"""The Secrets of buckets and entries: their names, their content, and how runs change them.

Their data is never recorded.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Malformed, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS
from workers.core.owned.manifests import manifest
from workers.core.owned.targets import TargetCluster
from workers.kinds.backups.backupfolders import checked

GENERATED_IN = "backupbucket.extensions.gardener.cloud/generated-secret-namespace"
"""Annotation: the namespace of a bucket's generated Secret."""

_SOURCE = "source-"


class SecretName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Entry:
    """The parts of an entry's name, and the names derived from it."""

    technical_id: str
    """Of the Shoot: its namespace."""
    folder: str
    secret: str
    """The Secret for the Shoot's etcd."""
    twin: str
    """The entry of the same Shoot on the other side of a migration."""


def entry(name: str) -> Entry:
    """The parts of `[source-]<technical id>--<uid>`."""
    folder = name.removeprefix(_SOURCE)
    technical_id, dashes, uid = folder.rpartition("--")
    if not (technical_id and dashes and uid):
        raise Malformed(
            f"metadata.name: {name!r} names no Shoot; it has to be <technical id>--<uid of the Shoot>"
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
    """The generated Secret of a bucket: the reported one, or the one to create."""
    reported = bucket.status.get("generatedSecretRef") or {}
    namespace = reported.get("namespace") or bucket.annotations.get(GENERATED_IN) or "garden"
    name = reported.get("name") or f"generated-bucket-{bucket.name}"
    return _checked(f"annotation {GENERATED_IN}", str(namespace), str(name))


def _checked(where: str, namespace: str, name: str) -> SecretName:
    """The name, or Malformed if no Secret can have it. `where` names the field."""
    try:
        SECRETS.path(namespace, name)
    except Malformed as error:
        raise Malformed(f"{where}: {error}") from error
    return SecretName(namespace, name)


CREATED_BY = "backup.gardener.cloud/created-by"
PURPOSE, REQUESTOR = "security.gardener.cloud/purpose", "workload-identity-token-requestor"
_IDENTITY = "workloadidentity.security.gardener.cloud/"
_NAME, _NAMESPACE, _CONTEXT = (_IDENTITY + name for name in ("name", "namespace", "context-object"))
_RENEW, _PROVIDER = _IDENTITY + "token-renew-timestamp", _IDENTITY + "provider"
_TOKEN, _CONFIG = "token", "config"


@dataclass(frozen=True)
class Content:
    """The content of a Secret of ours."""

    data: Mapping[str, str]
    """In base64."""
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def content(entry: str, about: Mapping[str, str], credentials: Object, found: Object | None) -> Content:
    """The desired content of the Secret of `entry`; `found` is the existing one.

    `about` tells where the bucket is.
    """
    ours = {name: encoded(text) for name, text in about.items()}
    created_by = {CREATED_BY: entry}
    if credentials.labels.get(PURPOSE) == REQUESTOR:
        return _identity(credentials, found or Object({}), ours, created_by)
    return Content({**_data(credentials), **ours}, created_by, {})


def patch(wanted: Content, found: Object) -> dict[str, Any] | None:
    """The merge patch to exactly this content. None if there is no difference."""
    changes: dict[str, Any] = {"data": _changes(wanted.data, _data(found))}
    metadata = {
        "annotations": _changes(wanted.annotations, found.annotations),
        "labels": _changes(wanted.labels, found.labels),
    }
    changes |= {"metadata": {name: change for name, change in metadata.items() if change}}
    changes = {name: change for name, change in changes.items() if change}
    if not changes:
        return None
    # Optimistic concurrency: another controller may have written a token since the read.
    locked = {"uid": found.uid, "resourceVersion": found.resource_version}
    return {**changes, "metadata": {**locked, **changes.get("metadata", {})}}


def _identity(
    credentials: Object, found: Object, ours: Mapping[str, str], created_by: Mapping[str, str]
) -> Content:
    """The content for a workload identity. Another controller writes the token and its renewal time."""
    for name in (_NAME, _NAMESPACE):
        _require(credentials.annotations, name, "annotation")
    _require(credentials.labels, _PROVIDER, "label")
    data = {
        **_only(_data(credentials), _CONFIG),
        **_only(_data(found), _TOKEN),
        **ours,
    }
    annotations = {
        **_only(credentials.annotations, _NAME, _NAMESPACE, _CONTEXT),
        **_only(found.annotations, _RENEW),
        **created_by,
    }
    return Content(data, annotations, _only(credentials.labels, PURPOSE, _PROVIDER))


def _require(words: Mapping[str, Any], name: str, what: str) -> None:
    if not words.get(name):
        raise Malformed(
            f"spec.secretRef: the Secret is labelled {PURPOSE}={REQUESTOR}, but has no {what} {name}; add it"
        )


def _only(words: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: words[name] for name in names if name in words}


def _changes(wanted: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, str | None]:
    taken: dict[str, str | None] = {name: None for name in found if name not in wanted}
    return taken | {name: value for name, value in wanted.items() if found.get(name) != value}


def _data(secret: Object) -> dict[str, str]:
    return dict(secret.raw.get("data") or {})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


T = TypeVar("T")

_CONFLICTS = 5


async def add_finalizer(target: TargetCluster, secret: SecretName, finalizer: str) -> None:
    """Protect the Secret by a finalizer while an object depends on it."""

    async def act(kube: Kube) -> bool:
        found = await _found(kube, secret)
        if found is None:
            raise Malformed(f"spec.secretRef: Secret {secret} does not exist: create it, or correct the name")
        if finalizer in found.finalizers:
            return False
        if found.deleting:
            raise TransientError(f"spec.secretRef: Secret {secret} is being deleted: create it again")
        await _set_finalizers(kube, secret, found, [*found.finalizers, finalizer])
        return True

    await _retrying_conflicts(target, "hold", {"secret": str(secret), "finalizer": finalizer}, act)


async def remove_finalizer(target: TargetCluster, secret: SecretName, finalizer: str) -> None:
    """Remove the finalizer. The Secret may be gone."""

    async def act(kube: Kube) -> bool:
        found = await _found(kube, secret)
        if found is None or finalizer not in found.finalizers:
            return False
        left = [other for other in found.finalizers if other != finalizer]
        await _set_finalizers(kube, secret, found, left)
        return True

    await _retrying_conflicts(target, "let go", {"secret": str(secret), "finalizer": finalizer}, act)


async def exists(target: TargetCluster, secret: SecretName) -> bool:
    async def act() -> bool:
        return await _found(await target.connection.api(), secret) is not None

    return bool(await target.recorder.call("look", {"secret": str(secret)}, act))


async def write(
    target: TargetCluster,
    secret: SecretName,
    source: SecretName,
    content: Callable[[Object, Object | None], Content],
) -> None:
    """Write `content` of the Secret with the credentials and of the existing Secret, if there is one."""

    async def act(kube: Kube) -> bool:
        given = await _found(kube, source)
        if given is None:
            raise Malformed(f"spec.secretRef: Secret {source} does not exist: create it, or correct the name")
        found = await _found(kube, secret)
        wanted = content(given, found)
        if found is None:
            made = manifest(
                SECRETS, secret.name, secret.namespace, labels=wanted.labels, data=dict(wanted.data)
            )
            made["metadata"]["annotations"] = dict(wanted.annotations)
            await kube.create(SECRETS, secret.namespace, made)
            return True
        change = patch(wanted, found)
        if change:
            await kube.merge(SECRETS, secret.namespace, secret.name, change)
        return change is not None

    await _retrying_conflicts(target, "tell", {"secret": str(secret), "of": str(source)}, act)


async def remove_if_ours(target: TargetCluster, secret: SecretName, entry: str) -> None:
    """Remove the Secret, unless another entry owns it by now."""

    async def act(kube: Kube) -> bool:
        found = await _found(kube, secret)
        if found is None or found.annotations.get(CREATED_BY, entry) != entry:
            return False
        return await kube.remove(SECRETS, secret.namespace, secret.name)

    await _retrying_conflicts(target, "take back", {"secret": str(secret), "of": entry}, act)


async def _retrying_conflicts(
    target: TargetCluster, door: str, request: dict[str, str], act: Callable[[Kube], Awaitable[bool]]
) -> bool:
    """Call `act`, and retry on conflicts: clients write these Secrets often."""

    async def retry() -> bool:
        kube = await target.connection.api()
        for _ in range(_CONFLICTS):
            try:
                return await act(kube)
            except Conflict:
                continue
        raise TransientError(f"Secret {request['secret']}: changed by others again and again")

    return bool(await target.recorder.call(door, request, retry, effect=True))


async def _found(kube: Kube, secret: SecretName) -> Object | None:
    return await kube.find(SECRETS, secret.namespace, secret.name)


async def _set_finalizers(kube: Kube, secret: SecretName, found: Object, finalizers: list[str]) -> None:
    locked = {"uid": found.uid, "resourceVersion": found.resource_version}
    await kube.merge(
        SECRETS, secret.namespace, secret.name, {"metadata": {**locked, "finalizers": finalizers}}
    )
