"""MachineClasses of type local."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from clouds.frame import pools
from clouds.frame.machineclasses import Planned
from clouds.frame.pools import Group, Inputs
from windowbox.errors import Malformed
from windowbox.models.gardener import capabilities, cloudprofile
from windowbox.models.gardener.capabilities import Known
from windowbox.models.gardener.cloudconfig import explained
from windowbox.models.gardener.cloudprofile import Capability, CloudProfileSpec, Version
from windowbox.models.gardener.worker import ProviderStatus, UsedImage, WorkerPool, WorkerSpec
from windowbox.models.objects import Object
from workers.core.owned import ownerindex

PROVIDER = "local"
_GROUP = "local.provider.extensions.gardener.cloud/v1alpha1"
_ARCHITECTURE = "amd64"


def plan(
    worker: Object,
    spec: WorkerSpec,
    profile: CloudProfileSpec,
    site: pools.Site,
    families: Sequence[str],
    *,
    with_resources: bool,
) -> Planned:
    """The groups of all pools of a Worker; `families` are the IP families of the Shoot."""
    found, images = list[Group](), list[UsedImage]()
    for pool in spec.pools:
        images.append(used_image(pool, profile, worker))
        found += _groups(pool, site, families, images[-1], with_resources=with_resources)
    return Planned(PROVIDER, found, provider_status(images, profile))


def _groups(
    pool: WorkerPool, site: pools.Site, families: Sequence[str], image: UsedImage, *, with_resources: bool
) -> Iterator[Group]:
    """A group for each zone, or one in the region."""
    suffix, zones = class_hash(pool, site), pool.zones or [site.region]
    for i, zone in enumerate(zones):
        # Gardener's names follow the index of the zone, not its name: other zones rename the deployments.
        name = f"{site.namespace}-{pool.name}-z{i + 1}"
        spec = _provider_spec(pool, site, families, image, zone, with_resources=with_resources)
        template = _node_template(pool, site, zone)
        class_name = f"{name}-{suffix}"
        yield Group(pool, name, class_name, zone, i, len(zones), spec, {}, template, shares_limits=False)


def class_hash(pool: WorkerPool, site: pools.Site) -> str:
    """The suffix of the names of a pool's MachineClasses."""
    if not pool.node_agent_secret_name:
        raise Malformed(
            f'missing node-agent secret name for worker pool "{pool.name}": '
            f"set nodeAgentSecretName of pool {pool.name!r} in spec.pools"
        )
    # gardenlet hashes version, machine type, image and container runtime into the name of that Secret.
    return pools.class_hash(pool, site, "", Inputs({}, {}))


def _provider_spec(
    pool: WorkerPool,
    site: pools.Site,
    families: Sequence[str],
    image: UsedImage,
    zone: str,
    *,
    with_resources: bool,
) -> dict[str, Any]:
    spec: dict[str, Any] = {"image": image.image}
    for family in families:
        version = family.removeprefix("IPv")
        spec[f"ipPoolNameV{version}"] = ownerindex.machine_ip_pool(site.namespace, family)
    spec["namespace"] = ownerindex.infrastructure_namespace(site.namespace)
    if with_resources:  # fields that Gardener's provider-local does not know
        capacity = _capacity(pool)
        amounts = {name: str(capacity[name]) for name in ("cpu", "memory") if name in capacity}
        disks = [{"name": pool.volume.name or "root", "size": pool.volume.size}] if pool.volume else []
        disks += [{"name": disk.name, "size": disk.size} for disk in pool.data_volumes or []]
        resources = {"requests": amounts, "limits": amounts}
        spec |= {"resources": resources, "zone": zone, "volumes": disks}
    return spec


def _node_template(pool: WorkerPool, site: pools.Site, zone: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "capacity": dict(_capacity(pool)),
        "instanceType": pool.machine_type,
        "region": site.region,
        "zone": zone,
        "architecture": pool.architecture or _ARCHITECTURE,
    }
    assert pool.node_template is not None
    if pool.node_template.virtual_capacity:
        found["virtualCapacity"] = dict(pool.node_template.virtual_capacity)
    return found


def _capacity(pool: WorkerPool) -> Mapping[str, Any]:
    if pool.node_template is None:
        raise Malformed(
            f"nodeTemplate of pool {pool.name!r:.80} in spec.pools is not set: "
            "give the capacity of its machines"
        )
    return pool.node_template.capacity


def used_image(pool: WorkerPool, profile: CloudProfileSpec, worker: Object) -> UsedImage:
    """The image of a pool. One that the CloudProfile has lost is taken from the Worker's status."""
    definitions = profile.machine_capabilities or []
    machine = next(one for one in profile.machine_types or [] if one.name == pool.machine_type)
    able = capabilities.defaulted(machine.capabilities, definitions)
    asked = pool.machine_image
    assert asked is not None  # the plan has checked it
    reason = f"spec.providerConfig of the CloudProfile has no image {asked.name!r} {asked.version!r}"
    listed = cloudprofile.config(profile).machine_images if profile.provider_config is not None else []
    versions = (one for known in listed if known.name == asked.name for one in known.versions or [])
    if entry := next((one for one in versions if one.version == asked.version), None):
        try:
            return _of_entry(entry, asked.name, able, definitions)
        except Malformed as error:
            reason = str(error)
    reported, before = worker.status.get("providerStatus"), list[UsedImage]()
    if isinstance(reported, Mapping):
        try:
            before = ProviderStatus.model_validate(reported).machine_images or []
        except ValidationError as error:
            what = f"could not decode worker status of worker '{worker.namespace}/{worker.name}'"
            reasons = "; ".join(map(explained, error.errors()))
            raise Malformed(f"{what}: status.providerStatus.{reasons}") from error
    for used in before:
        if (used.name, used.version) == (asked.name, asked.version) and _fits(used, able, definitions):
            return used
    raise Malformed(
        f"could not find machine image for {asked.name}/{asked.version} neither in cloud profile nor in "
        f"worker status: {reason}; add it to machineImages there, or correct machineImage of pool "
        f"{pool.name!r}"
    )


def provider_status(images: Iterable[UsedImage], profile: CloudProfileSpec) -> dict[str, Any]:
    """`status.providerStatus`: the images in use, each once."""
    definitions = profile.machine_capabilities or []
    kept: dict[tuple[Any, ...], UsedImage] = {}
    for one in images:
        known = capabilities.defaulted(one.capabilities, definitions)
        capable = tuple(sorted((name, tuple(sorted(values))) for name, values in known.items()))
        kept.setdefault((one.name, one.version, capable), one)
    listed = [one.model_dump(by_alias=True, exclude_none=True) for one in kept.values()]
    return {"apiVersion": _GROUP, "kind": "WorkerStatus", "machineImages": listed}


def _of_entry(entry: Version, name: str, able: Known, definitions: Sequence[Capability]) -> UsedImage:
    """The image of the entry, or the one of its flavors that suits the machine best."""
    if not definitions:
        if not entry.image:
            raise Malformed(f"image {name!r} {entry.version!r} in machineImages has no container image")
        return UsedImage(name=name, version=entry.version, image=entry.image)
    flavors = [
        UsedImage(name=name, version=entry.version, image=flavor.image, capabilities=flavor.capabilities)
        for flavor in entry.capability_flavors or []
    ]
    fitting = [one for one in flavors if _fits(one, able, definitions)]
    if not fitting:
        raise Malformed("no compatible flavor found")
    # The CloudProfile lists capabilities, and the values of each, from the preferred to the last.
    for definition in definitions:
        for value in definition.values:
            if len(fitting) == 1:
                return fitting[0]
            preferred = [
                one
                for one in fitting
                if value in capabilities.defaulted(one.capabilities, definitions)[definition.name]
            ]
            fitting = preferred or fitting
    if len(fitting) > 1:
        raise Malformed(
            "could not determine a unique capability flavor; "
            "this is usually attributed to an invalid CloudProfile"
        )
    return fitting[0]


def _fits(image: UsedImage, able: Known, definitions: Sequence[Capability]) -> bool:
    known = capabilities.defaulted(image.capabilities, definitions)
    return not definitions or capabilities.fit(able, known)
