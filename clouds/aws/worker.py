"""Pools of type aws and their WorkerConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clouds.aws import profile
from clouds.aws.api import CloudProfileConfig, CpuOptions, MetadataOptions, VolumeConfig, WorkerConfig
from clouds.frame.gardenobjects import DataVolume, Volume, Worker
from clouds.frame.problems import Problem, duplicate, forbidden, invalid, listing, required, too_many
from clouds.frame.quantities import negative

_WITH_IOPS = "io1"
_MOST_DATA_VOLUMES = 11


def problems(
    worker: Worker, zones: Sequence[str], config: WorkerConfig | None, path: str
) -> Iterator[Problem]:
    if worker.volume is None:  # AWS-W1
        yield required(f"{path}.volume", "give a size and a type")
    else:
        yield from _volumes(worker, worker.volume, path)
    if not worker.zones:  # AWS-W5
        yield required(f"{path}.zones", "name one zone at least")
    for i, zone in enumerate(worker.zones):
        if zone not in zones:
            detail = f"supported values {listing(zones)}: add it to networks.zones first"
            yield invalid(f"{path}.zones[{i}]", zone, detail)
    if config is not None:
        yield from _config(worker, config, f"{path}.providerConfig")


def _volumes(worker: Worker, volume: Volume, path: str) -> Iterator[Problem]:
    """AWS-W1, AWS-W2 and AWS-W4. Without a root volume the extension looks at no data volume."""
    if len(worker.data_volumes) > _MOST_DATA_VOLUMES:
        yield too_many(f"{path}.dataVolumes", len(worker.data_volumes), _MOST_DATA_VOLUMES)
    each: list[tuple[str, Volume | DataVolume]] = [(f"{path}.volume", volume)]
    each += [(f"{path}.dataVolumes[{i}]", one) for i, one in enumerate(worker.data_volumes)]
    for where, one in each:
        if not one.size:
            yield required(f"{where}.size", "give it, such as 50Gi")
        if one.type is None:
            yield required(f"{where}.type", "give a volume type of the CloudProfile")
        if one.type == _WITH_IOPS and worker.provider_config is None:
            yield required(f"{path}.providerConfig", f"give the iops of {where}, whose type is {_WITH_IOPS}")


def _config(worker: Worker, config: WorkerConfig, path: str) -> Iterator[Problem]:
    if worker.volume and worker.volume.type is not None:
        yield from _volume(config.volume, worker.volume.type, f"{path}.volume")
    by_name = {one.name: one for one in reversed(config.data_volumes)}
    for i, volume in enumerate(worker.data_volumes):
        if volume.type is not None:
            yield from _volume(by_name.get(volume.name), volume.type, f"{path}.dataVolumes[{i}]")
    known, used = {one.name for one in worker.data_volumes if one.type is not None}, set[str]()
    for i, one in enumerate(config.data_volumes):
        if one.name not in known:
            yield invalid(
                f"{path}.dataVolumes[{i}].name", one.name, "names no data volume of the pool: correct it"
            )
        if one.name in used:
            yield duplicate(f"{path}.dataVolumes[{i}].name", one.name)
        used.add(one.name)
    if (profile_ := config.iam_instance_profile) is not None:
        where = f"{path}.iamInstanceProfile"
        if (profile_.name is None) == (profile_.arn is None):
            yield invalid(where, profile_.model_dump(), "give either name or arn")
        for name, value in (("name", profile_.name), ("arn", profile_.arn)):
            if value == "":
                yield required(f"{where}.{name}", "is empty: give it, or remove the field")
    if (template := config.node_template) is not None:
        where = f"{path}.nodeTemplate.capacity"
        if not template.capacity:
            yield required(where, "give cpu, gpu or memory of a new node, or remove nodeTemplate")
        for name in negative(template.capacity, "cpu", "gpu", "memory"):
            yield invalid(f"{where}.{name}", template.capacity[name], "must not be negative: give 0 or more")
    if config.instance_metadata_options:
        yield from _metadata_options(config.instance_metadata_options, f"{path}.instanceMetadataOptions")
    if config.cpu_options:
        yield from _cpu_options(config.cpu_options, f"{path}.cpuOptions")


def _volume(config: VolumeConfig | None, type_: str, path: str) -> Iterator[Problem]:
    if config is None or config.iops is None:
        if type_ == _WITH_IOPS:
            yield required(f"{path}.iops", f"volumes of type {_WITH_IOPS} need it: give a number")
    elif config.iops <= 0:
        yield forbidden(f"{path}.iops", "must be more than 0: correct or remove it")
    if config is not None and config.throughput is not None and config.throughput <= 0:
        yield invalid(f"{path}.throughput", config.throughput, "must be more than 0: correct or remove it")


def _metadata_options(options: MetadataOptions, path: str) -> Iterator[Problem]:
    limit = options.http_put_response_hop_limit
    if limit is not None and not 1 <= limit <= 64:
        yield invalid(f"{path}.httpPutResponseHopLimit", limit, "give a number between 1 and 64")
    if options.http_tokens not in (None, "required", "optional"):
        detail = "write required or optional"
        yield invalid(f"{path}.httpTokens", options.http_tokens, detail)


def _cpu_options(options: CpuOptions, path: str) -> Iterator[Problem]:
    """The extension crashes if the threads are missing: here that is an error of the field."""
    if options.core_count is None:
        yield required(f"{path}.coreCount", "give it together with threadsPerCore")
    if options.threads_per_core is None:
        yield required(f"{path}.threadsPerCore", "give it together with coreCount")
    elif options.threads_per_core not in (1, 2):
        yield invalid(f"{path}.threadsPerCore", options.threads_per_core, "give 1 or 2")


def image_problems(
    new: Sequence[Worker], region: str, config: CloudProfileConfig, path: str
) -> Iterator[Problem]:
    """AWS-W6: at each update too, because the extension compares addresses of images, not images."""
    for i, worker in enumerate(new):
        image, architecture = worker.machine.image, worker.machine.architecture
        if image and profile.ami(config, image.name, image.version, region, architecture) is None:
            detail = (
                f"the CloudProfile has no AMI for region {region} and architecture {architecture}: add it"
            )
            yield invalid(f"{path}[{i}].machine.image", image.model_dump(), detail)
