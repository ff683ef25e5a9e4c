"""The emulator behaves as the oracle predicts: the golden tables, held against plans and MachineClasses."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from clouds import table
from clouds.frame import admission, infrastructure, machineclasses
from clouds.frame.changes import nodes
from clouds.frame.changes.effects import Effect, Kind
from clouds.frame.cloud import Json
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.gardenobjects import shoot as read
from clouds.frame.infrastructure import Plan
from clouds.frame.inventory import CloudObject
from tests.unit.clouds.oracle import goldens

_CLOUDS = [cloud for cloud in table.TYPES if table.cloud(cloud).infrastructure]


@cache
def _accepted(cloud: str) -> list[tuple[goldens.Row, list[Effect], tuple[Plan, Plan]]]:
    """The rows that are not refused, with their effects, and the Infrastructures before and after."""
    found = []
    for row in goldens.rows(cloud):
        effects = row.found()
        if all(one.kind is not Kind.REFUSED for one in effects):
            new = admission.mutated(table.cloud(cloud), row.new, row.old, row.find)
            row = row._replace(new=new)
            before = _plan(row, row.old, None)
            found.append((row, effects, (before, _plan(row, new, before))))
    return found


def _plan(row: goldens.Row, shoot: Json, before: Plan | None) -> Plan:
    planner, spec = table.cloud(row.cloud).infrastructure, read(shoot).spec
    assert planner is not None
    site = infrastructure.Site(
        account=f"{row.cloud}-000000000000",
        technical_id="shoot--dev--one",
        region=spec.region,
        config=spec.provider.infrastructure_config,
        networking=spec.networking,
        profile=ProfileSpec.model_validate(row.objects["CloudProfile", "", row.cloud]["spec"]),
        ssh_public_key="ssh-rsa AAAA",
        credentials={"subscription": "one", "project": "two", "domain": "one"},
        state={} if before is None else before.state,
        status={} if before is None else before.provider_status,
        pools=spec.provider.workers,
    )
    existing = {(one.kind, one.id): CloudObject(one.kind, one.id, one.id) for one in planner.references(site)}
    return planner.plan(site, existing)


@pytest.mark.parametrize("cloud", _CLOUDS)
def test_what_egress_passes_goes_when_egress_is_interrupted(cloud: str) -> None:
    wrong = {}
    for row, effects, (old, new) in _accepted(cloud):
        found = not _exits(old) <= _exits(new) or (not old.egress and bool(new.egress))
        if found != any(one.kind is Kind.EGRESS for one in effects):
            wrong[row.name] = (_exits(old), _exits(new))

    assert wrong == {}


def _exits(plan: Plan) -> set[str]:
    """Addresses, routers and NAT gateways that connections out of the cluster pass."""
    gateways = (one for one in plan.objects if re.search("nat|router$", one.kind, re.IGNORECASE))
    return {*plan.egress, *(f"{one.id} in zone {one.properties.get('zone')}" for one in gateways)}


@pytest.mark.parametrize("cloud", [pytest.param(cloud, id=f"ALL-Z4+{cloud}") for cloud in _CLOUDS])
def test_machine_classes_get_other_names_when_nodes_are_rolled(cloud: str) -> None:
    wrong = {}
    for row, effects, plans in _accepted(cloud):
        versions = nodes.versions(table.changes(cloud), row.old, row.new, row.find, row.find)
        old, new = (_classes(row, *each) for each in zip(versions, plans, strict=True))
        found = {group for group, name in new.items() if old.get(group, name) != name}
        rolled = {
            group
            for one in effects
            if one.kind in (Kind.ROLLS, Kind.UPDATES) and one.path.startswith(("spec.", "status."))
            for group in new.keys() & old.keys()
            if group[0] in one.pools and (not one.zones or group[1] in one.zones)
        }
        if found != rolled:
            wrong[row.name] = (found, rolled)

    assert wrong == {}


def _classes(row: goldens.Row, version: nodes.Version, plan: Plan) -> dict[tuple[str, str], str]:
    """The names of MachineClasses by pool and zone."""
    machines = table.cloud(row.cloud).machines
    assert machines is not None
    credentials = {"subscription": "one", "project": "two"}
    status = plan.provider_status
    site = replace(
        version.site, infrastructure=status, ssh_public_key="ssh-rsa AAAA", credentials=credentials
    )
    pools = [
        pool
        if name in version.old_form
        else pool.model_copy(update={"node_agent_secret_name": _node_agent_secret(site.shoot, name)})
        for name, pool in version.pools.items()
    ]
    found = machineclasses.plan(row.cloud, machines, pools, site).groups
    return {(one.pool.name, one.zone): one.class_name for one in found}


def _node_agent_secret(shoot: Any, name: str) -> str:
    """As gardenlet names it."""
    spec, rotation = shoot["spec"], shoot["status"].get("credentials", {}).get("rotation", {})
    pool = next(one for one in spec["provider"]["workers"] if one["name"] == name)
    if "InPlace" in pool.get("updateStrategy", ""):
        return f"gardener-node-agent-{name}"
    kubernetes = pool.get("kubernetes", {})
    version = kubernetes.get("version", spec["kubernetes"]["version"])
    image = pool["machine"]["image"]
    parts = [version.rpartition(".")[0], pool["machine"]["type"], image["name"] + image["version"]]
    parts += [pool["volume"][one] for one in ("size", "type") if one in pool.get("volume", {})]
    parts += [pool["cri"]["name"]] if "cri" in pool else []
    parts += [one["lastInitiationTime"] for one in rotation.values()]
    if spec.get("systemComponents", {}).get("nodeLocalDNS", {}).get("enabled"):
        parts.append("node-local-dns")
    kubelet = kubernetes.get("kubelet", spec["kubernetes"].get("kubelet", {}))
    parts += [str(_reserved(kubelet))] if "kubeReserved" in kubelet else []
    parts += [str(kubelet[one]) for one in ("evictionHard", "cpuManagerPolicy") if one in kubelet]
    digests = "".join(hashlib.sha256(part.encode()).hexdigest() for part in parts)
    return f"gardener-node-agent-{name}-{hashlib.sha256(digests.encode()).hexdigest()[:16]}"


def _reserved(kubelet: dict[str, dict[str, str]]) -> dict[str, float]:
    """For kube and system together, in cores and MiB."""
    units = {"m": 0.001, "Mi": 1, "Gi": 1024}
    found: dict[str, float] = {}
    for each in (kubelet["kubeReserved"], kubelet.get("systemReserved", {})):
        for name, text in each.items():
            unit = text.lstrip("0123456789")
            found[name] = round(found.get(name, 0) + int(text.removesuffix(unit)) * units[unit], 3)
    return found
