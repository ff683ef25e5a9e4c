"""The golden tables of the oracle: changes of a Shoot of each cloud, and what they do.

The tables are the YAML files beside; `common.yaml` is for all clouds. Paths are short: `infra` is the
InfrastructureConfig, `control` the ControlPlaneConfig, `pool` the pool `a`, `config` its WorkerConfig.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from clouds import table
from clouds.frame.changes import oracle
from clouds.frame.changes.effects import Effect
from clouds.frame.cloud import Json

_HERE = Path(__file__).parent
_NAMESPACE, _TECHNICAL_ID = "garden-dev", "shoot--dev--one"
_SHORT = {
    "infra": "spec.provider.infrastructureConfig",
    "control": "spec.provider.controlPlaneConfig",
    "config": "spec.provider.workers[a].providerConfig",
    "pool": "spec.provider.workers[a]",
    "annotations": "metadata.annotations",
}


class Row(NamedTuple):
    cloud: str
    rule: str
    """Of the contract; empty if none says so."""
    name: str
    old: Json
    new: Json
    objects: Mapping[tuple[str, str, str], Json]
    effects: list[str]
    """Each as `kind path`, and `of POOLS in ZONES` where the path does not say it."""

    def found(self) -> list[Effect]:
        cloud, changes = table.cloud(self.cloud), table.changes(self.cloud)
        return oracle.effects(cloud, changes, self.old, self.new, self.find, self.find)

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.objects.get((kind, namespace, name))


def rows(cloud: str) -> list[Row]:
    given = _read(cloud)
    return [_row(cloud, given, each) for each in (*given["rows"], *_read("common")["rows"])
            if cloud not in each.get("not", ())]  # fmt: skip


@cache
def _read(name: str) -> Json:
    found: Json = yaml.safe_load((_HERE / f"{name}.yaml").read_text())
    return found


def _row(cloud: str, given: Json, row: Json) -> Row:
    old = _changed(_shoot(cloud, given["shoot"]), row.get("from", {}))
    new = _changed(old, row["change"])
    name = row.get("name") or "+".join(path.rpartition("/")[2] for path in row["change"])
    objects = _objects(cloud, given, old_form=row.get("form") == "old")
    return Row(cloud, row.get("rule", ""), name, old, new, objects, row.get("effects", []))


def _shoot(cloud: str, given: Json) -> Json:
    group = f"{cloud}.provider.extensions.gardener.cloud/v1alpha1"
    provider = {
        "type": cloud,
        "infrastructureConfig": {"apiVersion": group, "kind": "InfrastructureConfig", **given["infra"]},
        "controlPlaneConfig": {"apiVersion": group, "kind": "ControlPlaneConfig", **given["control"]},
        "workers": deepcopy(given["pools"]),
    }
    for pool in provider["workers"]:
        if "providerConfig" in pool:
            pool["providerConfig"] |= {"apiVersion": group, "kind": "WorkerConfig"}
    spec = {"cloudProfile": {"name": cloud}, "kubernetes": {"version": "1.30.2"}, **deepcopy(given["spec"])}
    return {
        "kind": "Shoot",
        "metadata": {"name": "one", "namespace": _NAMESPACE, "annotations": {}},
        "spec": {**spec, "provider": provider},
        "status": {"technicalID": _TECHNICAL_ID},
    }


def _objects(cloud: str, given: Json, *, old_form: bool) -> dict[tuple[str, str, str], Json]:
    group = f"{cloud}.provider.extensions.gardener.cloud/v1alpha1"
    profile = deepcopy(given["profile"])
    profile["providerConfig"] |= {"apiVersion": group, "kind": "CloudProfileConfig"}
    data = {name: b64encode(text.encode()).decode() for name, text in given.get("secret", {}).items()}
    objects: dict[tuple[str, str, str], Json] = {
        ("CloudProfile", "", cloud): {"spec": profile},
        ("Secret", _NAMESPACE, "core"): {"data": data},
        ("SecretBinding", _NAMESPACE, "core"): {"secretRef": {"namespace": _NAMESPACE, "name": "core"}},
    }
    if old_form:
        pools = [{"name": pool["name"]} for pool in given["shoot"]["pools"]]
        objects["Worker", _TECHNICAL_ID, "one"] = {"spec": {"pools": pools}}
    return objects


def _changed(shoot: Json, changes: Mapping[str, Any]) -> Json:
    """A copy with other values at these paths; null removes one, and `[]+` appends to a list."""
    found = deepcopy(shoot)
    provider = found["spec"]["provider"]
    starts = {
        "infra": provider["infrastructureConfig"],
        "control": provider["controlPlaneConfig"],
        "pools": provider["workers"],
        "pool": provider["workers"][0],
        "spec": found["spec"],
        "status": found["status"],
        "annotations": found["metadata"]["annotations"],
    }
    for path, value in changes.items():
        head, *steps = path.split("/") if not path.startswith("annotations/") else path.split("/", 1)
        if head == "config":
            starts["config"] = starts["pool"].setdefault("providerConfig", {
                "apiVersion": provider["infrastructureConfig"]["apiVersion"], "kind": "WorkerConfig",
            })  # fmt: skip
        target: Any = starts[head]
        for step in steps[:-1]:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        last = steps[-1]
        if last == "+":
            target.append(deepcopy(value))
        elif isinstance(target, list):
            target[int(last) : int(last) + 1] = [] if value is None else [deepcopy(value)]
        elif value is None:
            target.pop(last, None)
        else:
            target[last] = deepcopy(value)
    return found


def spelled(effect: Effect) -> str:
    """As the tables write it."""
    path = effect.path
    for short, long in _SHORT.items():
        if path == long or path.startswith((f"{long}.", f"{long}[")):
            path = short + path.removeprefix(long)
            break
    shared = f" of {' '.join(effect.pools)}" if effect.pools and "workers" not in effect.path else ""
    return f"{effect.kind} {path}{shared}" + (f" in {' '.join(effect.zones)}" if effect.zones else "")
