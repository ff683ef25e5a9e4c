"""What updates of Shoots of type aws do. Inputs of the hash need no rule: nodes are rolled by it."""

from __future__ import annotations

from clouds.aws import machines
from clouds.aws.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from clouds.frame.changes.effects import NETWORKS, Changes, Kind, Rule, flow_annotations

_GROUP = "aws.provider.extensions.gardener.cloud"
_DRIVER = Rule(Kind.IN_PLACE, "the EBS CSI driver is updated", "AWS-X7")

CHANGES = Changes(
    machines=machines.MACHINES,
    hash_inputs=machines.hash_inputs,
    infrastructure=InfrastructureConfig,
    control_plane=ControlPlaneConfig,
    worker=WorkerConfig,
    rules={
        f"{NETWORKS}.zones[]": [
            Rule(Kind.IN_PLACE, "the zone gets three subnets, and egressCIDRs its NAT gateway", "AWS-U2")
        ],
        f"{NETWORKS}.zones[].elasticIPAllocationID": [
            Rule(Kind.EGRESS, "the NAT gateway of the zone is made anew", "AWS-U2"),
            Rule(
                Kind.LASTING,
                "the address that Gardener made is deleted for good",
                "AWS-U2",
                lambda old, new: old is None,
            ),
        ],
    },
    annotations={
        **flow_annotations("aws"),
        f"{_GROUP}/volume-attach-limit": [_DRIVER],
        f"{_GROUP}/legacy-xfs": [_DRIVER],
        f"{_GROUP}/enable-volume-attributes-class": [_DRIVER],
    },
)
