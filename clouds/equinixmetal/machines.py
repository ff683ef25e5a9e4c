"""MachineClasses of type equinixmetal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.equinixmetal.api import CloudProfileConfig, WorkerConfig
from clouds.frame import inventory, machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash
from windowbox.models.gardener.worker import WorkerPool


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """One group, whose machines land in any of the pool's facilities (EQX-W2, EQX-W3)."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    name = f"{site.namespace}-{pool.name}"
    class_name = f"{name}-{class_hash(pool, site, raw_config, hash_inputs(pool, site))}"
    yield Group(pool, name, class_name, "", 0, 1, _provider_spec(pool, config, site, image), {})


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """Nothing: the raw config counts in the old form of the hash only."""
    return Inputs({}, {})


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none."""
    wanted, architecture = machineclasses.image_and_architecture(pool)
    config = machineclasses.profile_config(CloudProfileConfig, site)
    head = {"name": wanted.name, "version": wanted.version}
    if (entry := next(machineclasses.versions(config.machine_images, wanted), None)) is not None:
        return head | machineclasses.given(id=entry.id or None, ipxeScriptUrl=entry.ipxe_script_url)
    found = machineclasses.used_before(site.used_images, wanted, architecture, unnamed=architecture)
    if found is None:
        raise machineclasses.unknown_image(wanted)
    return found


def _provider_spec(
    pool: WorkerPool, config: WorkerConfig, site: Site, image: Mapping[str, Any]
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "projectID": site.credentials.get("project", ""),
        "OS": image.get("id") or "",
        "billingCycle": "hourly",
        "machineType": pool.machine_type,
        "metro": site.region,
        "sshKeys": [machineclasses.needed(site.infrastructure, "sshKeyID")],
        "tags": [f"kubernetes.io/cluster/{site.namespace}", "kubernetes.io/role/node"],
    }
    spec |= machineclasses.given(ipxeScriptUrl=image.get("ipxeScriptUrl"))
    if pool.zones:
        spec["facilities"] = pool.zones
    if config.reservation_ids:
        spec["reservationIDs"] = config.reservation_ids
    return spec | machineclasses.given(reservedDevicesOnly=config.reserved_devices_only)


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7, EQX-W1, EQX-W2."""
    metro, device = text(spec, "metro"), ("device", machine.owner, machine.name)
    facilities, asked = _texts(spec.get("facilities")), _texts(spec.get("reservationIDs"))
    # Any of them, but always the same for a machine.
    place = int(inventory.digest(*device)[:8], 16) % len(facilities) if facilities else 0
    return Instance(
        provider_id=f"equinixmetal://{metro}/{inventory.made_uuid(*device)}",
        image=text(spec, "OS") or text(spec, "ipxeScriptUrl"),
        type=text(spec, "machineType"),
        region=metro,
        zone=facilities[place] if facilities else "",
        reservations=tuple(asked),
        reserved_only=spec.get("reservedDevicesOnly") is True,
    )


def _texts(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


MACHINES = Machines(
    provider="EquinixMetal",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="422 {image} is not a valid operating system",
)
