"""What updates of Shoots of type openstack do. Most of its InfrastructureConfig is immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clouds.frame import machineclasses
from clouds.frame.changes.effects import NETWORKS, PROVIDER, WORKERS, Changes, Kind, Rule, flow_annotations
from clouds.frame.cloud import Json
from clouds.frame.pools import Site
from clouds.openstack import machines
from clouds.openstack.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from windowbox.models.gardener.worker import WorkerPool

_NEW_ONES = Rule(Kind.IN_PLACE, "load balancers that are made later get it, others stay as they are")


def expected(site: Site, pools: Sequence[WorkerPool], before: Json | None) -> Site:
    """OST-W1: another policy is another server group."""
    configs = ((pool, machineclasses.worker_config(WorkerConfig, pool).server_group) for pool in pools)
    groups = [{"poolName": pool.name, "id": group.policy} for pool, group in configs if group]
    return replace(site, dependencies=groups)


CHANGES = Changes(
    hash_inputs=machines.hash_inputs,
    infrastructure=InfrastructureConfig,
    control_plane=ControlPlaneConfig,
    worker=WorkerConfig,
    rules={
        f"{NETWORKS}.shareNetwork.enabled": [Rule(Kind.IN_PLACE, "a share network is made", "OST-U1")],
        f"{PROVIDER}.controlPlaneConfig.loadBalancerProvider": [_NEW_ONES],
        f"{PROVIDER}.controlPlaneConfig.loadBalancerClasses": [_NEW_ONES],
        f"{WORKERS}[].providerConfig.machineLabels": [
            Rule(
                Kind.IN_PLACE, "without triggerRollingOnUpdate machines that are made later get it", "OST-W8"
            )
        ],
    },
    annotations={
        **flow_annotations("openstack"),
        "openstack.provider.extensions.gardener.cloud/worker-preserve-hash": [
            Rule(Kind.IN_PLACE, "it counts for pools without a node agent Secret", "OST-W8")
        ],
    },
    expected=expected,
)
