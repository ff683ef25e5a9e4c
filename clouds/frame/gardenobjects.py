"""Shoots and CloudProfiles, as far as clouds read them, with Gardener's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from clouds.frame.cidrs import Cidr
from clouds.frame.decoding import Struct, Text, parse
from clouds.frame.problems import Problem, invalid


class Lenient(Struct):
    """A part of an object of Gardener: what its API server has let pass."""

    model_config = ConfigDict(extra="ignore")


class Metadata(Lenient):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, Text] = Field({})
    deletion_timestamp: str | None = None


class Image(Lenient):
    name: str = ""
    version: str = ""


class Machine(Lenient):
    type: str = ""
    image: Image | None = None
    architecture: str = "amd64"


class Volume(Lenient):
    name: str | None = None
    type: str | None = None
    size: str = ""
    encrypted: bool | None = None


class DataVolume(Lenient):
    name: str = ""
    type: str | None = None
    size: str = ""
    encrypted: bool | None = None


class Worker(Lenient):
    """A pool of machines."""

    name: str = ""
    machine: Machine = Machine()
    volume: Volume | None = None
    data_volumes: list[DataVolume] = []
    zones: list[Text] = []
    labels: dict[str, Text] = {}
    provider_config: object = None


class Provider(Lenient):
    type: str = ""
    infrastructure_config: object = None
    control_plane_config: object = None
    workers: list[Worker] = []


def _ip_families(given: object) -> object:
    return given or ["IPv4"]


class Networking(Lenient):
    type: str | None = None
    nodes: str | None = None
    pods: str | None = None
    services: str | None = None
    ip_families: Annotated[list[Text], BeforeValidator(_ip_families)] = ["IPv4"]
    provider_config: object = None

    def ranges(self, path: str) -> list[Cidr | None]:
        """The ranges of nodes, pods and services; `path` is what errors put before their names."""
        given = (("nodes", self.nodes), ("pods", self.pods), ("services", self.services))
        return [None if text is None else Cidr(text, f"{path}.{name}") for name, text in given]


class Kubernetes(Lenient):
    version: str = ""


class ProfileReference(Lenient):
    kind: str = "CloudProfile"
    name: str = ""


class NodeLocalDns(Lenient):
    enabled: bool = False
    force_tcp_to_upstream_dns: bool | None = Field(None, alias="forceTCPToUpstreamDNS")


class SystemComponents(Lenient):
    node_local_dns: NodeLocalDns | None = Field(None, alias="nodeLocalDNS")


class ShootSpec(Lenient):
    cloud_profile: ProfileReference | None = None
    cloud_profile_name: str = ""
    region: str = ""
    secret_binding_name: str | None = None
    credentials_binding_name: str | None = None
    provider: Provider = Provider()
    networking: Networking = Networking()
    kubernetes: Kubernetes = Kubernetes()
    seed_name: str | None = None
    system_components: SystemComponents | None = None


class Operation(Lenient):
    type: str = ""
    state: str = ""


class ShootStatus(Lenient):
    last_operation: Operation | None = None
    seed_name: str | None = None


class Shoot(Lenient):
    metadata: Metadata = Metadata()
    spec: ShootSpec = ShootSpec()
    status: ShootStatus = ShootStatus()

    @property
    def profile(self) -> ProfileReference | None:
        """The CloudProfile that it names."""
        if self.spec.cloud_profile is not None:
            return self.spec.cloud_profile
        name = self.spec.cloud_profile_name
        return ProfileReference(name=name) if name else None


class Zone(Lenient):
    name: str = ""


class Region(Lenient):
    name: str = ""
    zones: list[Zone] = []


class AddedVersion(Lenient):
    version: str = ""
    architectures: list[Text] = []
    """Without a default: a version of the parent need not repeat them."""


def _architectures(given: object) -> object:
    return given or ["amd64"]


class ImageVersion(AddedVersion):
    """A version of an image of a CloudProfile."""

    architectures: Annotated[list[Text], BeforeValidator(_architectures)] = ["amd64"]


class MachineImage(Lenient):
    name: str = ""
    versions: list[ImageVersion] = []


class AddedImage(Lenient):
    """An image that a NamespacedCloudProfile adds, or whose versions it prolongs."""

    name: str = ""
    versions: list[AddedVersion] = []


class MachineType(Lenient):
    name: str = ""


class ProfileSpec(Lenient):
    """The spec of a CloudProfile."""

    type: str = ""
    regions: list[Region] = []
    machine_images: list[MachineImage] = []
    machine_types: list[MachineType] = []
    provider_config: object = None

    def zones(self, region: str) -> frozenset[str] | None:
        """The zones of a region; None if the profile does not have the region."""
        for one in self.regions:
            if one.name == region:
                return frozenset(zone.name for zone in one.zones)
        return None


class NamespacedProfileSpec(Lenient):
    """The spec of a NamespacedCloudProfile."""

    parent: ProfileReference = ProfileReference()
    machine_images: list[AddedImage] = []
    machine_types: list[MachineType] = []
    provider_config: object = None


def shoot(given: object) -> Shoot:
    """Malformed if it is none."""
    return parse(Shoot, given, "the Shoot")


def stored(shoot: Mapping[str, Any]) -> dict[str, Any]:
    """A checked Shoot as an API server has it: without nulls, and with networking. Configs stay as given."""
    found: dict[str, Any] = _without_nulls(shoot)
    spec = found.setdefault("spec", {})
    spec.setdefault("networking", {})
    spec.setdefault("provider", {})
    return found


_CONFIGS = ("providerConfig", "infrastructureConfig", "controlPlaneConfig")
_TEXTS = ("zones", "ipFamilies")
"""Lists of texts, where null is an empty text."""


def _stored(name: str, value: Any) -> Any:
    if name in _CONFIGS:
        return deepcopy(value)
    if name in _TEXTS and isinstance(value, list):
        return ["" if one is None else one for one in value]
    return _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _stored(name, one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [{} if one is None else _without_nulls(one) for one in value]
    return value


def families_other_than_ipv4(networking: Networking) -> Iterator[Problem]:
    """Clouds without IPv6."""
    if networking.ip_families == ["IPv6"] or len(networking.ip_families) > 1:
        yield invalid(
            "spec.networking.ipFamilies", networking.ip_families, "this cloud has IPv4 only: set [IPv4]"
        )


def zones_not_extended(old: Sequence[Worker], new: Sequence[Worker], path: str) -> Iterator[Problem]:
    """ALL-Z1: zones of a pool may only be added at the end."""
    for i, after, before in old_and_new(old, new):
        if before is not None and after.zones[: len(before.zones)] != before.zones:
            detail = f"field is immutable, except at its end: begin with {', '.join(before.zones):.500}"
            yield invalid(f"{path}[{i}].zones", after.zones, detail)


def old_and_new(old: Sequence[Worker], new: Sequence[Worker]) -> list[tuple[int, Worker, Worker | None]]:
    """Each new pool with its place and the old one of the same name."""
    by_name = {one.name: one for one in reversed(old)}
    return [(i, one, by_name.get(one.name)) for i, one in enumerate(new)]
