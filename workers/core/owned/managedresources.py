"""ManagedResources: objects for a resource manager, in Secrets named after a checksum of their data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import brotli
import yaml

from windowbox.errors import Refused, Waiting
from windowbox.models.extensions import OPERATION, TIMESTAMP, instant
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import MANAGED_RESOURCES, SECRETS
from workers.core import clock
from workers.core.owned import manifests
from workers.core.owned.manifests import Manifest, manifest
from workers.core.owned.targets import TargetCluster

DATA = "data.yaml.br"
PREFIX = "managedresource-"
COLLECTABLE = {"resources.gardener.cloud/garbage-collectable-reference": "true"}
"""The resource manager removes Secrets with this label that no ManagedResource references."""
REFERENCE = "reference.resources.gardener.cloud/secret-"

NO_CLEANUP = {"shoot.gardener.cloud/no-cleanup": "true"}
_SEED_COMPONENT = {"gardener.cloud/role": "seed-system-component"}
_APPLIED, _INVALID = "error during apply of object ", " is invalid:"
_PENDING = "DeletionPending"
_DELETION_FAILED = ("DeletionFailed", _PENDING)
_SOON, _PACE_OF_MANAGER = 0.2, 5.0
"""Seconds between two checks of objects in deletion: our shortest, and that of the resource manager."""
_HEALTH_CONDITIONS = ("ResourcesApplied", "ResourcesHealthy")


@dataclass(frozen=True)
class Bundle:
    """A ManagedResource with its data."""

    name: str
    namespace: str
    data: Mapping[str, bytes]
    class_: str = ""
    """The class of the resource manager; empty for that of the Shoot."""
    prefix: str = PREFIX
    """Prefix of the names of its Secrets."""
    options: Mapping[str, Any] | None = None
    """Further fields of its spec; None for those of an Extension."""

    @property
    def secret_name(self) -> str:
        return f"{self.prefix}{self.name}-{checksum(self.data)[:8]}"


def for_seed(name: str, namespace: str, objects: Iterable[Manifest]) -> Bundle:
    return Bundle(name, namespace, packed(objects), class_="seed")


def for_shoot(name: str, namespace: str, objects: Iterable[Manifest]) -> Bundle:
    return Bundle(name, namespace, packed(objects))


def packed(objects: Iterable[Manifest]) -> dict[str, bytes]:
    """The compressed objects. Deterministic: their checksum is part of a name."""
    return {DATA: brotli.compress(plain(objects))}  # type: ignore[no-untyped-call]


def plain(objects: Iterable[Manifest]) -> bytes:
    """The objects as YAML, in a fixed order."""

    def file_name(object: Manifest) -> str:
        metadata = object["metadata"]
        return "__".join((object["kind"].lower(), metadata.get("namespace", ""), metadata["name"]))

    ordered = sorted(objects, key=file_name)
    documents = (yaml.safe_dump(one, sort_keys=True, allow_unicode=True) for one in ordered)
    return "---\n".join(documents).encode()


def checksum(data: Mapping[str, bytes]) -> str:
    """The checksum of the values, in the order of their keys."""
    return _hash("".join(hashlib.sha256(data[key]).hexdigest() for key in sorted(data)))


def reference(secret_name: str) -> dict[str, str]:
    """The annotation that marks a Secret as referenced."""
    return {REFERENCE + _hash(secret_name)[:8]: secret_name}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def secret(bundle: Bundle) -> Manifest:
    return manifest(
        SECRETS,
        bundle.secret_name,
        bundle.namespace,
        labels=COLLECTABLE,
        type="Opaque",
        immutable=True,
        data={key: base64.b64encode(value).decode() for key, value in bundle.data.items()},
    )


def managed_resource(bundle: Bundle) -> Manifest:
    options = bundle.options
    if options is None:
        options = {"keepObjects": False} | ({} if bundle.class_ else {"injectLabels": NO_CLEANUP})
    spec: dict[str, Any] = {"secretRefs": [{"name": bundle.secret_name}], **options}
    spec |= {"class": bundle.class_} if bundle.class_ else {}
    # Objects for one Shoot are no component of the seed.
    of_seed = bundle.class_ == "seed" and not bundle.namespace.startswith("shoot-")
    labels = _SEED_COMPONENT if of_seed else None
    made = manifest(MANAGED_RESOURCES, bundle.name, bundle.namespace, labels=labels, spec=spec)
    made["metadata"]["annotations"] = reference(bundle.secret_name)
    return made


def secrets_of(found: Object) -> list[str]:
    """The Secrets that a ManagedResource references."""
    return [str(ref["name"]) for ref in mappings(found.spec.get("secretRefs")) if ref.get("name")]


def unhealthy(found: Object, *, settled: bool = False) -> str:
    """Why a ManagedResource is not healthy; empty if it is.

    With `settled`, its objects must not be progressing, either.
    """
    applied = _condition(found, "ResourcesApplied")
    # On a failure, the resource manager does not report the generation that it has observed.
    if found.status.get("observedGeneration") != found.generation and applied.get("status") != "False":
        return "the resource manager has not looked at it yet"
    for type_ in _HEALTH_CONDITIONS:
        condition = _condition(found, type_)
        if condition.get("status") != "True":
            return f"{type_} is {condition.get('status') or 'not reported yet'}{_message(condition)}"
    progressing = _condition(found, "ResourcesProgressing")
    if settled and progressing.get("status") != "False":
        said = progressing.get("status") or "not reported yet"
        return f"ResourcesProgressing is {said}{_message(progressing)}"
    return ""


def deletion_problem(found: Object) -> tuple[str, tuple[str, ...]]:
    """The obstacle to the deletion, as the resource manager reports it, with Gardener's error codes."""
    condition = _condition(found, "ResourcesApplied")
    if condition.get("status") == "True" or condition.get("reason") not in _DELETION_FAILED:
        return "", ()
    return _message(condition), problem_codes(str(condition.get("message")))


def problem_codes(problem: str) -> tuple[str, ...]:
    """Gardener's error codes for what a resource manager reports."""
    for line in problem.lower().splitlines():
        _, applied, rest = line.partition(_APPLIED)
        if applied and _INVALID in rest:
            return ("ERR_CONFIGURATION_PROBLEM",)
    return ()


def _condition(found: Object, type_: str) -> Mapping[str, Any]:
    conditions = mappings(found.status.get("conditions"))
    return next((one for one in conditions if one.get("type") == type_), {})


def _message(condition: Mapping[str, Any]) -> str:
    return f": {condition['message']}" if condition.get("message") else ""


def _named(namespace: str, name: str) -> str:
    return f"ManagedResource {namespace}/{name}"


async def ensure(target: TargetCluster, bundle: Bundle) -> Object | None:
    """Create or update the ManagedResource. Returns the existing one; None if this call has written it.

    Its former Secrets are labelled before the reference changes, so that a crash leaves none behind.
    """
    wanted = managed_resource(bundle)
    secret_ = secret(bundle)
    try:
        await target.ensure_secret(secret_)
    except Refused:
        # The Secret is immutable, and somebody has created another one of this name.
        await target.remove(SECRETS, bundle.namespace, bundle.secret_name)
        await target.ensure_secret(secret_)
    found = await target.cached(MANAGED_RESOURCES, bundle.namespace, bundle.name)
    differs = found is None or manifests.differs(MANAGED_RESOURCES, found, wanted)
    if found and differs:
        for name in secrets_of(found):
            if name != bundle.secret_name:
                patch: dict[str, Any] = {"metadata": {"labels": COLLECTABLE}}
                await target.merge(SECRETS, bundle.namespace, name, patch)
    await target.ensure(MANAGED_RESOURCES, wanted)
    if found and differs:
        # References that another program has left would keep its Secrets for ever.
        ours = reference(bundle.secret_name)
        old = {key: None for key in found.annotations if key.startswith(REFERENCE) and key not in ours}
        if old:
            patch = {"metadata": {"annotations": old}}
            await target.merge(MANAGED_RESOURCES, bundle.namespace, bundle.name, patch)
    return None if differs else found


async def ensure_healthy(target: TargetCluster, bundle: Bundle, *, settled: bool = False) -> None:
    """Like `ensure`, and wait until it is healthy; with `settled`, also until nothing progresses."""
    found = await ensure(target, bundle)
    problem = unhealthy(found, settled=settled) if found else "the resource manager has not looked at it yet"
    if problem:
        raise Waiting(f"waiting for {_named(bundle.namespace, bundle.name)} to be healthy: {problem}")


async def remove(target: TargetCluster, namespace: str, name: str, *secrets: str, keep: bool = False) -> None:
    """Delete the ManagedResource with its Secrets and `secrets`, and wait until it is gone.

    With `keep`, its objects stay.
    """
    found = await begin_removal(target, namespace, name, *secrets, PREFIX + name, keep=keep)
    if found:
        await require_gone(target, [found])


async def begin_removal(
    target: TargetCluster, namespace: str, name: str, *secrets: str, keep: bool = False
) -> Object | None:
    """Like `remove`, without waiting. Returns the ManagedResource as it was; None if it was gone already.

    `secrets` are names that it may not reference any more.
    """
    found = await target.live(MANAGED_RESOURCES, namespace, name)
    if found is None:
        for secret_name in secrets:
            await target.remove(SECRETS, namespace, secret_name)
        return None
    if keep and found.spec.get("keepObjects") is not True:
        await target.merge(MANAGED_RESOURCES, namespace, name, {"spec": {"keepObjects": True}})
    if not found.deleting:
        for secret_name in dict.fromkeys((*secrets_of(found), *secrets)):
            await target.remove(SECRETS, namespace, secret_name)
        await target.remove(MANAGED_RESOURCES, namespace, name)
    return found


async def require_gone(target: TargetCluster, left: Sequence[Object]) -> None:
    """Raise Waiting while there are ManagedResources left, with what blocks them."""
    whats, all_codes, pauses = list[str](), list[str](), list[float]()
    for found in left:
        why, codes = deletion_problem(found)
        whats.append(f"{_named(found.namespace, found.name)} to be gone{why}")
        all_codes += codes
        now = await clock.now(target.recorder)
        pause = next_look(found, now)
        if pause:
            pauses.append(pause)
        elif pause is not None:
            # The resource manager removes the annotation, and that event requeues.
            annotations = {OPERATION: "reconcile", TIMESTAMP: now.isoformat()}
            patch = {"metadata": {"uid": found.uid, "annotations": annotations}}
            await target.merge(MANAGED_RESOURCES, found.namespace, found.name, patch)
    if whats:
        codes, retry_after = tuple(dict.fromkeys(all_codes)), min(pauses, default=None)
        raise Waiting(f"waiting for {'; '.join(whats)}", codes=codes, retry_after=retry_after)


def next_look(found: Object, now: datetime) -> float | None:
    """Seconds until the resource manager should check its deletions again; None if no request is needed.

    By itself it checks after five seconds, though most objects are gone at once.
    """
    pending = _condition(found, "ResourcesApplied").get("reason") == _PENDING
    began = instant(found.metadata.get("deletionTimestamp"))
    if not pending or began is None or OPERATION in found.annotations:
        return None
    asked = instant(found.annotations.get(TIMESTAMP))
    if asked is None:
        return 0.0
    pause = max(_SOON, (asked - began).total_seconds() / 2)
    return max(0.0, pause - (now - asked).total_seconds()) if pause < _PACE_OF_MANAGER else None
