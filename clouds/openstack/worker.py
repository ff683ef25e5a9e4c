"""Pools of type openstack and their WorkerConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import Worker
from clouds.frame.problems import Problem, duplicate, forbidden, invalid, listing, required
from clouds.frame.quantities import NodeTemplate, negative
from clouds.openstack.api import CloudProfileConfig, ServerGroup, WorkerConfig
from windowbox.errors import Malformed

_AFFINITY = "affinity"
_CAPACITY = ("cpu", "gpu", "memory")


def problems(worker: Worker, profile: CloudProfileConfig, path: str) -> Iterator[Problem]:
    if not worker.zones:  # OST-W6
        yield required(f"{path}.zones", "name one zone at least")
        return
    volume = worker.volume
    if volume and volume.type is not None and not volume.size:  # OST-W7
        yield forbidden(f"{path}.volume.type", "needs a volume size: give it, or remove the type")
    if worker.provider_config is None:
        return
    where = f"{path}.providerConfig"
    try:
        config = decode(WorkerConfig, worker.provider_config, where, kind_optional=True)
    except Malformed as error:
        yield Problem(where, "Invalid", str(error))
        return
    if config.server_group:
        yield from _server_group(config.server_group, worker, profile, f"{where}.serverGroup.policy")
    if config.node_template:
        yield from _node_template(config.node_template, f"{where}.nodeTemplate.capacity")
    yield from _labels(config, worker.labels, f"{where}.machineLabels")


def _server_group(
    group: ServerGroup, worker: Worker, profile: CloudProfileConfig, path: str
) -> Iterator[Problem]:
    """OST-W1, OST-W2."""
    if not group.policy:
        yield invalid(path, "", "is empty: name a policy, or remove serverGroup")
    elif group.policy not in profile.server_group_policies:
        known = listing(profile.server_group_policies)
        yield invalid(path, group.policy, f"is no policy of the CloudProfile: use one of {known}")
    elif group.policy == _AFFINITY and len(worker.zones) > 1:
        yield forbidden(path, f"{_AFFINITY} is for pools in one zone only: remove the other zones")


def _node_template(template: NodeTemplate, path: str) -> Iterator[Problem]:
    """OST-W5."""
    for name in _CAPACITY:
        if name not in template.capacity:
            yield required(path, "give all of cpu, gpu and memory, or remove nodeTemplate")
    for name in negative(template.capacity, *_CAPACITY):
        yield invalid(f"{path}.{name}", template.capacity[name], "must not be negative: give 0 or more")


def _labels(config: WorkerConfig, pool: Mapping[str, str], path: str) -> Iterator[Problem]:
    """OST-W3, OST-W4."""
    used: set[str] = set()
    for i, label in enumerate(config.machine_labels):
        if label.name in used:
            yield duplicate(f"{path}[{i}].name", label.name)
        elif label.name in pool:
            yield invalid(f"{path}[{i}].name", label.name, "is a label of the pool already: use another name")
        used.add(label.name)
