"""The emulator behaves as the oracle predicts: the golden tables, held against plans and MachineClasses."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from clouds import table
from clouds.frame import infrastructure
from clouds.frame.changes import nodes
from clouds.frame.changes.effects import Effect, Kind
from clouds.frame.cloud import Json
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.gardenobjects import shoot as read
from clouds.frame.infrastructure import Plan
from clouds.frame.inventory import CloudObject
from clouds.frame.pools import Group
from tests.unit.clouds.oracle import goldens

_CLOUDS = [cloud for cloud in table.TYPES if table.cloud(cloud).infrastructure]


@cache
def _accepted(cloud: str) -> list[tuple[goldens.Row, list[Effect], tuple[Plan, Plan]]]:
    """The rows that are not refused, with their effects, and the Infrastructures before and after."""
    found = ((row, row.found()) for row in goldens.rows(cloud))
    accepted = [each for each in found if all(one.kind is not Kind.REFUSED for one in each[1])]
    plans = [(_plan(row, row.old, {}), row) for row, _ in accepted]
    both = [(before, _plan(row, row.new, before.state)) for before, row in plans]
    return [(*each, plan) for each, plan in zip(accepted, both, strict=True)]


def _plan(row: goldens.Row, shoot: Json, state: Json) -> Plan:
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
        state=state,
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
        old, new = (_classes(row, *each) for each in zip(_versions(row), plans, strict=True))
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


def _versions(row: goldens.Row) -> tuple[nodes.Version, nodes.Version]:
    return nodes.versions(table.changes(row.cloud), row.old, row.new, row.find, row.find)


def _classes(row: goldens.Row, version: nodes.Version, plan: Plan) -> dict[tuple[str, str], str]:
    """The names of MachineClasses by pool and zone."""
    machines: Any = import_module(f"clouds.{row.cloud}.machines")
    site = replace(
        version.site, infrastructure=plan.provider_status, ssh_public_key="ssh-rsa AAAA", project="p"
    )
    found: list[Group] = []
    for name, pool in version.pools.items():
        raw = "" if pool.provider_config is None else json.dumps(pool.provider_config)
        if name not in version.old_form:
            secret = _node_agent_secret(site.shoot, name)
            pool = pool.model_copy(update={"node_agent_secret_name": secret})
        found += machines.groups(pool, site, raw, machines.used_image(pool, site))
    return {(one.pool.name, one.zone): one.class_name for one in found}


def _node_agent_secret(shoot: Any, name: str) -> str:
    """As gardenlet names it."""
    spec, rotation = shoot["spec"], shoot["status"].get("credentials", {}).get("rotation", {})
    pool = next(one for one in spec["provider"]["workers"] if one["name"] == name)
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
