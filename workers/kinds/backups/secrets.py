"""The Secrets of buckets and entries, as runs reach them. What they hold is never noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Malformed, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS
from workers.core.owned.manifests import manifest
from workers.core.owned.targets import TargetCluster
from workers.kinds.backups import credentials
from workers.kinds.backups.credentials import Content
from workers.kinds.backups.names import SecretName

T = TypeVar("T")

_CONFLICTS = 5


async def add_finalizer(target: TargetCluster, secret: SecretName, finalizer: str) -> None:
    """Keep the Secret from vanishing while an object depends on it."""

    async def act(kube: Kube) -> bool:
        found = await _found(kube, secret)
        if found is None:
            raise Malformed(f"spec.secretRef: Secret {secret} does not exist: create it, or correct the name")
        if finalizer in found.finalizers:
            return False
        if found.deleting:
            raise TransientError(f"spec.secretRef: Secret {secret} is being deleted: create it anew")
        await _set_finalizers(kube, secret, found, [*found.finalizers, finalizer])
        return True

    await _retrying_conflicts(target, "hold", {"secret": str(secret), "finalizer": finalizer}, act)


async def remove_finalizer(target: TargetCluster, secret: SecretName, finalizer: str) -> None:
    """The same, over. It may be gone."""

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
    """Have the Secret hold what `content` makes of the one with the credentials, and of what it is now."""

    async def act(kube: Kube) -> bool:
        given = await _found(kube, source)
        if given is None:
            raise Malformed(f"spec.secretRef: Secret {source} does not exist: create it, or correct the name")
        found = await _found(kube, secret)
        wanted = content(given, found)
        if found is None:
            await kube.create(SECRETS, secret.namespace, _manifest(secret, wanted))
            return True
        patch = credentials.patch(wanted, found)
        if patch:
            await kube.merge(SECRETS, secret.namespace, secret.name, patch)
        return patch is not None

    await _retrying_conflicts(target, "tell", {"secret": str(secret), "of": str(source)}, act)


async def remove_if_ours(target: TargetCluster, secret: SecretName, entry: str) -> None:
    """Remove the Secret, unless it is another entry's by now."""

    async def act(kube: Kube) -> bool:
        found = await _found(kube, secret)
        if found is None or found.annotations.get(credentials.CREATED_BY, entry) != entry:
            return False
        return await kube.remove(SECRETS, secret.namespace, secret.name)

    await _retrying_conflicts(target, "take back", {"secret": str(secret), "of": entry}, act)


async def _retrying_conflicts(
    target: TargetCluster, door: str, request: dict[str, str], act: Callable[[Kube], Awaitable[bool]]
) -> bool:
    """Do it, and again on what others have written meanwhile: clients touch these Secrets often."""

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


def _manifest(secret: SecretName, content: Content) -> dict[str, object]:
    made = manifest(SECRETS, secret.name, secret.namespace, labels=content.labels, data=dict(content.data))
    made["metadata"]["annotations"] = dict(content.annotations)
    return made
