"""What an update does to the machines of a Shoot: the inputs of the hash (ALL-Z4), and the sizes of pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from clouds.frame import machineclasses
from clouds.frame.changes.effects import WORKERS, Changes, Effect, Kind
from clouds.frame.cloud import Json, Lookup, profile_of
from clouds.frame.decoding import parse
from clouds.frame.gardenobjects import shoot as read
from clouds.frame.pools import IN_PLACE, Site, hashed, share
from clouds.frame.quantities import amount
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import mapping, mappings

_MOST_POOLS = 100
_MOST_ZONES = 500
"""Of all pools."""
_SHARED = ("spec.", "status.", "CloudProfile.")
"""How the paths of inputs begin that are not of the pool itself."""
_LIKE_NODES = ("kubernetes", "machine.image", "status")
"""Inputs that nodes which are updated in place get without another machine."""
_COPIED = ("name", "minimum", "maximum", "volume", "dataVolumes", "zones", "providerConfig", "updateStrategy")
_RESERVED = ("cpu", "memory", "pid", "ephemeralStorage")
_EVICTION = (
    "imageFSAvailable",
    "imageFSInodesFree",
    "memoryAvailable",
    "nodeFSAvailable",
    "nodeFSInodesFree",
)


@dataclass(frozen=True)
class Version:
    """A Shoot before or after the update, as the MachineClasses are made of it."""

    site: Site
    pools: Mapping[str, WorkerPool]
    kubelets: Mapping[str, Mapping[str, Any]]
    old_form: frozenset[str]
    """The pools whose Worker names no node agent Secret."""


def versions(changes: Changes, old: Json, new: Json, before: Lookup, find: Lookup) -> tuple[Version, Version]:
    """Both versions of a Shoot. `before` and `find` find the objects that belong to them."""
    return _version(changes, old, before, None), _version(changes, new, find, old)


def _version(changes: Changes, shoot: Json, find: Lookup, stored: Json | None) -> Version:
    spec, given = mapping(shoot.get("spec")), read(shoot)
    technical_id = str(mapping(shoot.get("status")).get("technicalID") or "")
    profile = {"spec": {"providerConfig": profile_of(given, find).provider_config}}
    workers = mappings(mapping(spec.get("provider")).get("workers"))
    if len(workers) > _MOST_POOLS:
        raise Malformed(f"{WORKERS} has {len(workers)} pools: there may be {_MOST_POOLS}, remove some")
    pools = {str(one.get("name")): _pool(one) for one in workers}
    if (zones := sum(len(pool.zones or ()) for pool in pools.values())) > _MOST_ZONES:
        raise Malformed(f"pools have {zones} zones: there may be {_MOST_ZONES} of all pools, remove some")
    site = Site(technical_id, given.spec.region, {}, shoot, profile)
    site = changes.expected(site, stored)
    depend = (changes.machines.dependency(pool, site) for pool in pools.values())
    site = replace(site, dependencies=[one for one in depend if one is not None])
    of_shoot = mapping(mapping(spec.get("kubernetes")).get("kubelet"))
    kubelets = {
        str(one.get("name")): mapping(mapping(one.get("kubernetes")).get("kubelet")) or of_shoot
        for one in workers
    }
    worker = mapping(find("Worker", technical_id, given.metadata.name))
    known = mappings(mapping(worker.get("spec")).get("pools"))
    old_form = (str(one.get("name")) for one in known if not one.get("nodeAgentSecretName"))
    return Version(site, pools, kubelets, frozenset(old_form))


def _pool(given: Mapping[str, Any]) -> WorkerPool:
    """The pool of a Worker that gardenlet makes of that of a Shoot."""
    machine, kubernetes = mapping(given.get("machine")), mapping(given.get("kubernetes"))
    image = mapping(machine.get("image"))
    found = {name: given[name] for name in _COPIED if given.get(name) is not None}
    found |= {
        "machineType": machine.get("type") or "",
        "machineImage": {name: image.get(name) or "" for name in ("name", "version")},
        "kubernetesVersion": kubernetes.get("version"),
        "maxSurge": 0,
        "maxUnavailable": 0,
        "userDataSecretRef": {"key": ""},
    }
    for name in ("minimum", "maximum"):
        found.setdefault(name, 0)
    return parse(WorkerPool, found, f"pool {given.get('name')!r:.80}")


def effects(changes: Changes, old: Version, new: Version) -> Iterator[Effect]:
    """What happens to the pools that stay, and to those that are new or gone."""
    yield from _rolling(changes, old, new)
    for name, pool in new.pools.items():
        if (before := old.pools.get(name)) is not None:
            yield from _sizes(before, pool, f"{WORKERS}[{name}]", by_zone=changes.by_zone)
        else:
            why = f"a new pool with at least {pool.minimum} machines"
            yield Effect(Kind.ADDS, f"{WORKERS}[{name}]", None, name, why, pools=(name,))
    for name in old.pools:
        if name not in new.pools:
            why = "all machines of the pool"
            yield Effect(Kind.REMOVES, f"{WORKERS}[{name}]", name, None, why, pools=(name,))


def _rolling(changes: Changes, old: Version, new: Version) -> Iterator[Effect]:
    """An effect for each pool and each input of its hash that changed."""
    for name, pool in new.pools.items():
        if (before := old.pools.get(name)) is None:
            continue
        by_input: dict[tuple[str, Any, Any], list[str]] = defaultdict(list)
        zones = [zone for zone in pool.zones or () if zone in (before.zones or ())] or [""]
        for zone in zones:
            inputs = (_inputs(changes, one, name, zone, name in old.old_form) for one in (old, new))
            for changed in _changed(*inputs):
                by_input[changed].append(zone)
        for (path, one, other), found in by_input.items():
            is_like = pool.update_strategy in IN_PLACE and path.startswith(_LIKE_NODES)
            kind = Kind.UPDATES if is_like else Kind.ROLLS
            where = path if path.startswith(_SHARED) else f"{WORKERS}[{name}].{path}"
            some = () if found == zones else tuple(found)
            yield Effect(kind, where, one, other, _WHY[kind], "ALL-Z4", (name,), some)


_WHY = {
    Kind.ROLLS: "it counts in the hash that names the MachineClasses",
    Kind.UPDATES: "it counts in the hash, and the pool updates its nodes in place",
}


def _inputs(changes: Changes, of: Version, name: str, zone: str, in_old_form: bool) -> dict[str, str]:
    pool = of.pools[name]
    added = changes.hash_inputs(pool, of.site, zone)
    if in_old_form:
        return hashed(pool, of.site, machineclasses.spelled(pool.provider_config), added)
    # gardenlet hashes these into the name of the node agent Secret.
    shared = hashed(pool, of.site, "", added._replace(before={}))
    return {**shared, **_kubelet(of.kubelets[name]), **added.now}


def _kubelet(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings of the kubelet that count, spelled so that equal ones are equal."""
    found, path = {}, "kubernetes.kubelet"
    given = {name: mapping(config[name]) for name in ("kubeReserved", "systemReserved") if config.get(name)}
    if given:
        sums = [sum(amount(str(one[of])) for one in given.values() if of in one) for of in _RESERVED]
        found[f"{path}.{[*given][-1]}"] = "-".join(map(str, sums))
    if hard := mapping(config.get("evictionHard")):
        found[f"{path}.evictionHard"] = "-".join(str(hard.get(name) or "") for name in _EVICTION)
    if policy := config.get("cpuManagerPolicy"):
        found[f"{path}.cpuManagerPolicy"] = str(policy)
    return found


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, Any, Any]]:
    """The inputs that differ. Only values and their order are hashed, not the names."""
    if [*old.values()] == [*new.values()]:
        return
    names = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    for name in names:
        yield name, old.get(name), new.get(name)
    if not names:  # the same values in another order
        values = zip(new, old.values(), new.values(), strict=True)
        yield from ((name, None, None) for name, one, other in values if one != other)


def _sizes(old: WorkerPool, new: WorkerPool, path: str, *, by_zone: bool) -> Iterator[Effect]:
    """More or fewer machines in a zone (ALL-Z2)."""
    moved = by_zone and old.zones != new.zones
    for kind, field in ((Kind.ADDS, "minimum"), (Kind.REMOVES, "maximum")):
        before, after = (_shares(one, getattr(one, field), by_zone) for one in (old, new))
        sign = 1 if kind is Kind.ADDS else -1
        found = {
            zone: f"{before.get(zone, 0)} → {after.get(zone, 0)}" + (f" in {zone}" if zone else "")
            for zone in after | before
            if (after.get(zone, 0) - before.get(zone, 0)) * sign > 0
        }
        if found:
            name = "zones" if moved else field
            why = f"{field} of machines: {', '.join(found.values())}"
            some = tuple(zone for zone in found if zone) if len(found) < len(after | before) else ()
            values = (getattr(old, name), getattr(new, name))
            yield Effect(kind, f"{path}.{name}", *values, why, "ALL-Z2", (new.name,), some)


def _shares(pool: WorkerPool, size: int, by_zone: bool) -> dict[str, int]:
    zones = (pool.zones or [""]) if by_zone else [""]
    return {zone: share(i, size, len(zones)) for i, zone in enumerate(zones)}
