"""The content of the Secret that tells etcd where its backups are. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.objects import Object

CREATED_BY = "backup.gardener.cloud/created-by"
PURPOSE, REQUESTOR = "security.gardener.cloud/purpose", "workload-identity-token-requestor"
_IDENTITY = "workloadidentity.security.gardener.cloud/"
_NAME, _NAMESPACE, _CONTEXT = (_IDENTITY + name for name in ("name", "namespace", "context-object"))
_RENEW, _PROVIDER = _IDENTITY + "token-renew-timestamp", _IDENTITY + "provider"
_TOKEN, _CONFIG = "token", "config"


@dataclass(frozen=True)
class Content:
    """All that a Secret of ours holds."""

    data: Mapping[str, str]
    """In base64."""
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def content(entry: str, bucket: str, mount_path: str, credentials: Object, found: Object | None) -> Content:
    """What the Secret of `entry` ought to hold; `found` is what it is now."""
    ours = {"bucketName": _encoded(bucket), "hostPath": _encoded(mount_path)}
    created_by = {CREATED_BY: entry}
    if credentials.labels.get(PURPOSE) == REQUESTOR:
        return _identity(credentials, found or Object({}), ours, created_by)
    return Content({**_data(credentials), **ours}, created_by, {})


def patch(wanted: Content, found: Object) -> dict[str, Any] | None:
    """The merge patch that makes the Secret hold this, and nothing else. None if it does."""
    changes: dict[str, Any] = {"data": _changes(wanted.data, _data(found))}
    metadata = {
        "annotations": _changes(wanted.annotations, found.annotations),
        "labels": _changes(wanted.labels, found.labels),
    }
    changes |= {"metadata": {name: change for name, change in metadata.items() if change}}
    changes = {name: change for name, change in changes.items() if change}
    if not changes:
        return None
    # Onto the very version that was read: a token may have been put in meanwhile.
    locked = {"uid": found.uid, "resourceVersion": found.resource_version}
    return {**changes, "metadata": {**locked, **changes.get("metadata", {})}}


def _identity(
    credentials: Object, found: Object, ours: Mapping[str, str], created_by: Mapping[str, str]
) -> Content:
    """For a workload identity: another controller puts the token in, and notes when to renew it."""
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


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
