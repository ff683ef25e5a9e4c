"""A cloud: what its extension's admission does, each step as one function of the objects it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from clouds.frame.decoding import Config, parse
from clouds.frame.gardenobjects import NamespacedProfileSpec, ProfileSpec, Shoot
from clouds.frame.infrastructure import Planner
from clouds.frame.machineclasses import Machines
from clouds.frame.operator.existing import Kinds
from clouds.frame.operator.faults import Faults
from clouds.frame.problems import Problem
from clouds.frame.services.backups import Backups
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import StorageSite, Volumes
from windowbox.errors import Malformed
from windowbox.models.objects import mapping

Json = dict[str, Any]
Lookup = Callable[[str, str, str], Mapping[str, Any] | None]
"""An object by kind, namespace and name; None if it does not exist."""


@dataclass(frozen=True)
class ShootReview:
    """A Shoot with workers, and what its check reads besides."""

    shoot: Shoot
    old: Shoot | None = None
    """The stored Shoot; None at creation."""
    find: Lookup = lambda *_: None

    @cached_property
    def profile(self) -> ProfileSpec:
        """The spec of its CloudProfile. Malformed if there is none."""
        return profile_of(self.shoot, self.find)


def profile_of(shoot: Shoot, find: Lookup) -> ProfileSpec:
    """The spec of the CloudProfile that a Shoot names. Malformed if there is none."""
    reference = shoot.profile
    if reference is None:
        raise Malformed("spec.cloudProfile is missing: name the CloudProfile of the Shoot")
    if reference.kind == "NamespacedCloudProfile":
        found = find(reference.kind, shoot.metadata.namespace, reference.name)
        spec = mapping(mapping(found).get("status")).get("cloudProfileSpec")
    else:
        found = find(reference.kind, "", reference.name)
        spec = mapping(found).get("spec")
    if found is None:
        raise Malformed(
            f"spec.cloudProfile: there is no {reference.kind} {reference.name!r}: create it first"
        )
    return parse(ProfileSpec, spec, f"the {reference.kind}")


@dataclass(frozen=True)
class ProfileReview:
    """A NamespacedCloudProfile and its parent."""

    profile: NamespacedProfileSpec
    parent: ProfileSpec


ProviderSecret = Callable[[Mapping[str, bytes], Callable[[], Mapping[str, Any]]], dict[str, bytes | None]]
"""The changed values of a Secret, and None for those that go. The second reads the Cluster of the Shoot.

Malformed if the Secret or the Cluster lacks something."""

Secret = Callable[[Mapping[str, bytes], Mapping[str, bytes] | None], str | None]
"""The reason to reject credentials, of which the second are the stored ones; None if they are good."""


Mutate = Callable[[Json, Mapping[str, Any] | None, Lookup], None]
"""Changes a Shoot with workers in place; the second is the stored one. Malformed if it cannot be read."""


@dataclass(frozen=True)
class Account:
    """Whose cloud objects they are."""

    identity: str
    """What tells accounts apart, such as a subscription or a project."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """What ids and statuses of the cloud show of its credentials."""


_ConfigType = type[Config]


@dataclass(frozen=True)
class Cloud:
    """One type of provider."""

    type: str
    secret: Secret
    shoot: Callable[[ShootReview], Iterator[Problem]]
    profile: Callable[[ProfileSpec], Iterator[Problem]]
    account: Callable[[Mapping[str, bytes]], Account]
    """The account of credentials that `secret` accepts."""
    infrastructure: Planner
    namespaced_profile: Callable[[ProfileReview], Iterator[Problem]] | None = None
    profile_config: _ConfigType | None = None
    """The config of CloudProfiles, if NamespacedCloudProfiles may add to it."""
    unused_profile: Callable[[ProfileSpec], Iterator[Problem]] | None = None
    seed: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Iterator[Problem]] | None = None
    """Checks a Seed; the second is the stored one."""
    mutate: Mutate | None = None
    machines: Machines | None = None
    faults: Faults = field(default_factory=dict)
    dns: Dns | None = None
    existing: Kinds = field(default_factory=dict)
    backups: Backups | None = None
    volumes: Callable[[StorageSite], Volumes] | None = None
    """The storage classes of a Shoot. Malformed if a config cannot be read."""
    public_name: Callable[[str, str], str] | None = None
    """The host name of a public IPv4 address in a region, of clouds whose instances have one."""
    provider_secret: ProviderSecret | None = None
    """What changes in the Secret `cloudprovider` of a Shoot."""
