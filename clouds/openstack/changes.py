"""What updates of Shoots of type openstack do. Most of its InfrastructureConfig is immutable."""

from __future__ import annotations

from clouds.frame.changes.effects import NETWORKS, PROVIDER, WORKERS, Changes, Kind, Rule, flow_annotations
from clouds.openstack import machines
from clouds.openstack.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig

_NEW_ONES = Rule(Kind.IN_PLACE, "load balancers that are made later get it, others stay as they are")


CHANGES = Changes(
    machines=machines.MACHINES,
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
)
