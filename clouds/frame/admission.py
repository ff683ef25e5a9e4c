"""Who checks what (ALL-1 to ALL-6): the way from an object to the check of its cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame import profilestatus
from clouds.frame.cloud import Cloud, Json, Lookup, ProfileReview, Secret, ShootReview
from clouds.frame.decoding import parse
from clouds.frame.gardenobjects import (
    Lenient,
    Metadata,
    NamespacedProfileSpec,
    ProfileSpec,
    Shoot,
    shoot,
    stored,
)
from clouds.frame.problems import Problem, Refused, plain, required
from windowbox.errors import Malformed
from windowbox.models.gardener.cloudprofile import require_small
from windowbox.models.objects import from_base64

Object = Mapping[str, Any]

_MOST = 256
"""Problems in an answer."""
_MOST_VALUES = 100_000
"""Values in an object."""


class _Reference(Lenient):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Provider(Lenient):
    type: str = ""


class _Binding(Lenient):
    """A SecretBinding or CredentialsBinding."""

    metadata: Metadata = Metadata()
    provider: _Provider | None = None
    secret_ref: _Reference = _Reference()
    credentials_ref: _Reference = _Reference()


def problems(cloud: Cloud, about: str, new: Object, old: Object | None, find: Lookup) -> list[Problem]:
    """The reasons to refuse an object; empty if it is accepted. `about` is its kind in lower case."""
    check = {
        "shoot": _shoot,
        "cloudprofile": _profile,
        "namespacedcloudprofile": _namespaced_profile,
        "unused-cloudprofile": _unused_profile,
        "seed": _seed,
        "secret": _secret,
        "secretbinding": _secret_binding,
        "credentialsbinding": _credentials_binding,
    }[about]
    found: list[Problem] = []
    try:
        for one in (new, old):
            require_small(one, "the object", _MOST_VALUES)
        for problem in check(cloud, new, old, find):
            found.append(problem)
            if len(found) == _MOST:
                break
    except Refused as refused:
        found.extend(refused.problems[: _MOST - len(found)])
    except Malformed as error:
        found.append(plain(str(error)))
    return found


def mutated(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Json:
    """The Shoot as the cloud's mutator leaves it. Malformed if it cannot read it."""
    for one in (new, old):
        require_small(one, "the Shoot", _MOST_VALUES)
    has_workers, changed = bool(shoot(new).spec.provider.workers), stored(new)
    before = None
    if old is not None:
        shoot(old)
        before = stored(old)
    if cloud.mutate and has_workers:
        cloud.mutate(changed, before, find)
    return changed


def merged_config(cloud: Cloud, profile: Object) -> Json | None:
    """The config for the status of a NamespacedCloudProfile; None if it stays. Malformed if it is none."""
    require_small(profile, "the NamespacedCloudProfile", _MOST_VALUES)
    return profilestatus.merged(cloud.profile_config, profile) if cloud.profile_config else None


def _shoot(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    """ALL-5: Shoots without workers have no infrastructure to check."""
    given = shoot(new)
    if given.spec.provider.workers:
        yield from cloud.shoot(ShootReview(given, shoot(old) if old else None, find))


def _profile(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    return cloud.profile(parse(ProfileSpec, new.get("spec"), "the CloudProfile"))


def _unused_profile(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    if cloud.unused_profile is None:
        return iter(())
    return cloud.unused_profile(parse(ProfileSpec, new.get("spec"), "the CloudProfile"))


def _namespaced_profile(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    """ALL-7."""
    metadata = parse(Metadata, new.get("metadata"), "metadata of the NamespacedCloudProfile")
    if cloud.namespaced_profile is None or metadata.deletion_timestamp:
        return iter(())
    spec = parse(NamespacedProfileSpec, new.get("spec"), "the NamespacedCloudProfile")
    if spec.parent.kind != "CloudProfile":
        raise Malformed(f"spec.parent.kind has to be CloudProfile, not {spec.parent.kind!r:.50}")
    found = find("CloudProfile", "", spec.parent.name)
    if found is None:
        raise Malformed(f"spec.parent: there is no CloudProfile {spec.parent.name!r:.99}: create it first")
    parent = parse(ProfileSpec, found.get("spec"), "the parent CloudProfile")
    return cloud.namespaced_profile(ProfileReview(spec, parent))


def _seed(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    return cloud.seed(new, old) if cloud.seed else iter(())


def _secret(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    """ALL-6: an update with equal data is accepted unchecked."""
    data = _decoded(new)
    before = None if old is None else _decoded(old)
    if data != before:
        reason = cloud.secret(data, before)
        if reason:
            yield plain(reason)


def _secret_binding(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    """ALL-6: checked unless the type of the provider stays."""
    binding, before = (parse(_Binding, one, "the SecretBinding") for one in (new, old))
    if before.provider and binding.provider is None:  # the extension crashes
        return iter([required("provider", f"set its type to {before.provider.type!r:.99} again")])
    if before.provider and binding.provider == before.provider:
        return iter(())
    return _referenced(cloud, binding, binding.secret_ref, find)


def _credentials_binding(cloud: Cloud, new: Object, old: Object | None, find: Lookup) -> Iterator[Problem]:
    """ALL-6: checked at creation; what it refers to never changes."""
    if old is not None:
        return iter(())
    binding = parse(_Binding, new, "the CredentialsBinding")
    reference = binding.credentials_ref
    if (reference.api_version, reference.kind) != ("v1", "Secret"):
        found = f"version {reference.api_version!r:.99}, kind {reference.kind!r:.99}"
        raise Malformed(f"unsupported credentials reference: {found}: refer to a Secret of v1")
    return _referenced(cloud, binding, reference, find)


def _referenced(cloud: Cloud, binding: _Binding, reference: _Reference, find: Lookup) -> Iterator[Problem]:
    """The Secret is in the namespace of the binding if the reference names none."""
    namespace = reference.namespace or binding.metadata.namespace
    found = find("Secret", namespace, reference.name)
    if found is None:
        raise Malformed(f"there is no Secret {namespace}/{reference.name}: create it first")
    reason = cloud.secret(_decoded(found), None)
    if reason:
        yield plain(f"Secret {namespace}/{reference.name}: {reason}")


def credentials_reason(review: ShootReview, secret: Secret) -> str | None:
    """Why the credentials of a Shoot cannot be used; None if they can."""
    try:
        return secret(credentials(review.shoot, review.find), None)
    except Malformed as error:
        return str(error)


def credentials(shoot: Shoot, find: Lookup) -> dict[str, bytes]:
    """The data of the Secret that a Shoot's binding refers to. Malformed if there is none."""
    spec, namespace = shoot.spec, shoot.metadata.namespace
    name = spec.secret_binding_name or spec.credentials_binding_name or ""
    kind = "SecretBinding" if spec.secret_binding_name else "CredentialsBinding"
    reference = _Reference(namespace=namespace, name=name)
    if (given := find(kind, namespace, name)) is not None:
        binding = parse(_Binding, given, f"the {kind}")
        reference = binding.secret_ref if spec.secret_binding_name else binding.credentials_ref
    found = find("Secret", reference.namespace or namespace, reference.name)
    if found is None:
        where = f"{reference.namespace or namespace}/{reference.name}"
        raise Malformed(f"there is no Secret {where}: create it first")
    return _decoded(found)


def _decoded(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """The data of a Secret. The values never appear in an error."""
    try:
        return {
            name: from_base64("" if value is None else value)
            for name, value in (secret.get("data") or {}).items()
        }
    except (TypeError, AttributeError, ValueError) as error:
        raise Malformed("data of the Secret has a value that is not base64: encode it") from error
