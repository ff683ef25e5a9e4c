"""Pools of type gcp and their WorkerConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clouds.frame.gardenobjects import DataVolume, Worker
from clouds.frame.problems import Problem, duplicate, forbidden, invalid, not_supported, required
from clouds.frame.quantities import negative
from clouds.gcp import api
from clouds.gcp.api import WorkerConfig

SCRATCH = "SCRATCH"
_INTERFACES = ("NVME", "SCSI")
WITH_IOPS = ("pd-extreme", "hyperdisk-extreme", "hyperdisk-balanced")
WITH_THROUGHPUT = ("hyperdisk-throughput", "hyperdisk-balanced")
_CONFIG = "providerConfig"
"""The extension names no pool before it."""


def problems(worker: Worker, path: str) -> Iterator[Problem]:
    volume = worker.volume
    if volume is None:  # GCP-W11
        yield required(f"{path}.volume", "give a size and a type")
    else:
        if volume.type is None:
            yield required(f"{path}.volume.type", "give a volume type of the CloudProfile")
        elif volume.type == SCRATCH:
            yield invalid(f"{path}.volume.type", volume.type, f"{SCRATCH} is no boot disk: use another type")
        if not volume.size:
            yield required(f"{path}.volume.size", "give it, such as 50Gi")
    if not worker.zones:  # GCP-W13
        yield required(f"{path}.zones", "name one zone at least")


def config_problems(worker: Worker, config: WorkerConfig | None) -> Iterator[Problem]:
    given = config.volume if config else None
    for i, volume in enumerate(worker.data_volumes):
        if volume.type is None:  # GCP-W12
            yield required(f"dataVolumes[{i}].type", "give a volume type of the CloudProfile")
        elif volume.type == SCRATCH:
            yield from _scratch(given)
        elif given and given.interface is not None:  # GCP-W2
            detail = f"an interface is for {SCRATCH} volumes only: remove it"
            yield invalid(f"{_CONFIG}.volume.encryption", given.interface, detail)
    if config is None:
        return
    if given and given.encryption and not (given.encryption.kms_key_name or "").strip():  # GCP-W3
        yield required(f"{_CONFIG}.volume.encryption.kmsKeyName", "name the key, or remove encryption")
    yield from _data_volumes(config.data_volumes, {one.name: one for one in worker.data_volumes})
    if config.gpu:
        yield from _gpu(config.gpu)
    if config.service_account:
        yield from _service_account(config.service_account)
    if (template := config.node_template) is not None:  # GCP-W10
        path = f"{_CONFIG}.nodeTemplate.capacity"
        if not template.capacity:
            yield required(path, "give cpu, gpu or memory of a new node, or remove nodeTemplate")
        for name in negative(template.capacity, "cpu", "gpu", "memory"):
            yield invalid(f"{path}.{name}", template.capacity[name], "must not be negative: give 0 or more")


def _scratch(given: api.Volume | None) -> Iterator[Problem]:
    """GCP-W1, GCP-W4."""
    path = f"{_CONFIG}.volume"
    if given is None or given.interface is None:
        yield required(f"{path}.interface", f"{SCRATCH} volumes need it: write NVME or SCSI")
    elif given.interface not in _INTERFACES:
        yield not_supported(f"{path}.interface", given.interface, _INTERFACES)
    if given and given.encryption:
        yield invalid(f"{path}.encryption", None, f"{SCRATCH} volumes cannot be encrypted: remove it")


def _data_volumes(configs: list[api.DataVolume], volumes: Mapping[str, DataVolume]) -> Iterator[Problem]:
    """GCP-W5 to GCP-W7."""
    path, used = f"{_CONFIG}.dataVolume", set[str]()
    for i, one in enumerate(configs):
        volume = volumes.get(one.name)
        if volume is None:
            yield invalid(path, one.name, "names no data volume of the pool: correct it")
            continue
        if one.name in used:
            yield duplicate(f"{path}[{i}]", one.name)
        used.add(one.name)
        if one.provisioned_iops is not None and volume.type not in WITH_IOPS:
            yield forbidden(
                f"{path}.provisionedIops", f"is for volumes of {', '.join(WITH_IOPS)} only: remove it"
            )
        if one.provisioned_throughput is not None and volume.type not in WITH_THROUGHPUT:
            detail = f"is for volumes of {', '.join(WITH_THROUGHPUT)} only: remove it"
            yield forbidden(f"{path}.provisionedThroughput", detail)


def _gpu(gpu: api.Gpu) -> Iterator[Problem]:
    """GCP-W9."""
    if not gpu.accelerator_type:
        yield required(f"{_CONFIG}.gpu.acceleratorType", "name the type of the GPUs, or remove gpu")
    if gpu.count <= 0:
        yield forbidden(f"{_CONFIG}.gpu.count", "must be more than 0: give the number of GPUs, or remove gpu")


def _service_account(account: api.ServiceAccount) -> Iterator[Problem]:
    """GCP-W8."""
    path, used = f"{_CONFIG}.serviceAccount", set[str]()
    if not account.email:
        yield required(f"{path}.email", "give the address of the account, or remove serviceAccount")
    if not account.scopes:
        yield required(f"{path}.scopes", "name one scope at least")
    for i, scope in enumerate(account.scopes):
        if not scope:
            yield required(f"{path}.scopes[{i}]", "is empty: remove it")
        elif scope in used:
            yield duplicate(f"{path}.scopes[{i}]", scope)
        used.add(scope)
