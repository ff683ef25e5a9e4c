"""InfrastructureConfigs of type gcp."""

from __future__ import annotations

from collections.abc import Iterator

from clouds.frame.cidrs import Cidr, meeting, not_canonical, outside, ranges, unparsable
from clouds.frame.gardenobjects import Networking
from clouds.frame.problems import Problem, invalid, not_supported, required, unchanged
from clouds.gcp.api import CloudNat, FlowLogs, InfrastructureConfig, Networks, Vpc

_INTERVALS = ("INTERVAL_5_SEC", "INTERVAL_30_SEC", "INTERVAL_1_MIN", "INTERVAL_5_MIN", "INTERVAL_15_MIN")
_METADATA = ("INCLUDE_ALL_METADATA",)
_PATH = "spec.provider.infrastructureConfig.networks"


def problems(config: InfrastructureConfig, networking: Networking) -> Iterator[Problem]:
    networks = config.networks
    nodes, pods, services = networking.ranges("networking")
    former = Cidr(networks.worker, f"{_PATH}.worker") if networks.worker else None
    workers = _workers(networks)
    if workers is None:  # GCP-I3
        yield required(f"{_PATH}.workers", "give the range of the nodes' subnet, such as 10.250.0.0/19")
    for one in {former, workers}:
        yield from unparsable(one)
        yield from not_canonical(one)
    yield from outside(nodes, workers)
    if networks.internal is not None:  # GCP-I4
        internal = Cidr(networks.internal, f"{_PATH}.internal")
        yield from unparsable(internal)
        yield from not_canonical(internal)
        for one in (pods, services, nodes, workers):
            yield from meeting(one, internal)
    if networks.vpc:
        yield from _vpc(networks.vpc, f"{_PATH}.vpc")
    if networks.flow_logs:
        yield from _flow_logs(networks.flow_logs, f"{_PATH}.flowLogs")
    if networks.cloud_nat:
        yield from _nat(networks.cloud_nat, f"{_PATH}.cloudNAT")


def _workers(networks: Networks) -> Cidr | None:
    if networks.workers:
        return Cidr(networks.workers, f"{_PATH}.workers")
    return Cidr(networks.worker, f"{_PATH}.worker") if networks.worker else None


def _vpc(vpc: Vpc, path: str) -> Iterator[Problem]:
    """GCP-I1, GCP-I2."""
    if not vpc.name:
        yield invalid(f"{path}.name", vpc.name, "is empty: name the VPC, or remove vpc")
        if vpc.cloud_router:
            yield invalid(f"{path}.cloudRouter", vpc.cloud_router.name, "needs the name of its vpc: give it")
    elif vpc.cloud_router is None:
        yield invalid(f"{path}.cloudRouter", None, "an existing VPC needs its router: give cloudRouter.name")
    elif not vpc.cloud_router.name:
        yield invalid(f"{path}.cloudRouter.name", "", "is empty: give the name of the router")


def _flow_logs(logs: FlowLogs, path: str) -> Iterator[Problem]:
    """GCP-I9, GCP-I10."""
    interval, sampling, metadata = logs.aggregation_interval, logs.flow_sampling, logs.metadata
    if interval is None and sampling is None and metadata is None:
        yield required(path, "has no field: give one, or remove flowLogs")
    if interval is not None and interval not in _INTERVALS:
        yield not_supported(f"{path}.aggregationInterval", interval, _INTERVALS)
    if metadata is not None and metadata not in _METADATA:
        yield not_supported(f"{path}.metadata", metadata, _METADATA)
    if sampling is not None and not 0 <= sampling <= 1:
        yield invalid(f"{path}.flowSampling", sampling, "give a number between 0 and 1")


def _nat(nat: CloudNat, path: str) -> Iterator[Problem]:
    """GCP-I5 to GCP-I8."""
    least, most = nat.min_ports_per_vm, nat.max_ports_per_vm
    if nat.nat_ip_names is not None and not nat.nat_ip_names:
        yield invalid(f"{path}.natIPNames", [], "is empty: name an address, or remove the list")
    if not nat.enable_dynamic_port_allocation:
        if most is not None:
            detail = "needs dynamic port allocation: set enableDynamicPortAllocation to true"
            yield invalid(f"{path}.maxPortsPerVM", most, detail)
        return
    if nat.endpoint_independent_mapping and nat.endpoint_independent_mapping.enabled:
        detail = "dynamic port allocation excludes endpoint independent mapping: disable one of them"
        yield invalid(f"{path}.enableDynamicPortAllocation", True, detail)
    for name, ports in (("maxPortsPerVM", most), ("minPortsPerVM", least)):
        # As the extension computes with 32 bits: 0 and the least number pass.
        if ports is not None and ports & (ports - 1) & 0xFFFFFFFF and ports != -(1 << 31):
            yield invalid(f"{path}.{name}", ports, "must be a power of two, such as 1024")
    if most is not None and least is not None and least > most:
        yield invalid(f"{path}.minPortsPerVM", least, "is more than maxPortsPerVM: lower it")


def update_problems(old: InfrastructureConfig, new: InfrastructureConfig) -> Iterator[Problem]:
    before, after = old.networks, new.networks
    if before.vpc and not after.vpc:  # GCP-U1
        yield invalid(f"{_PATH}.vpc", None, f"field is immutable: set it to {before.vpc.name} again")
    if before.vpc and after.vpc:
        yield from unchanged(f"{_PATH}.vpc.name", after.vpc.name, before.vpc.name)
        yield from unchanged(f"{_PATH}.vpc.cloudRouter", after.vpc.cloud_router, before.vpc.cloud_router)
        yield from unchanged(f"{_PATH}.internal", after.internal, before.internal)  # GCP-U3
    workers, stored = _workers(after), _workers(before)
    if (
        workers and ranges([workers, stored]) == [workers, stored] and list(outside(workers, stored))
    ):  # GCP-U2
        kept = stored.text if stored else ""
        yield invalid(workers.path, workers.text, f"can only be expanded: it has to contain {kept}")
