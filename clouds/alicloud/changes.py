"""What updates of Shoots of type alicloud do. Inputs of the hash need no rule: nodes are rolled by it."""

from __future__ import annotations

from clouds.alicloud import machines
from clouds.alicloud.api import ControlPlaneConfig, InfrastructureConfig
from clouds.frame.changes.effects import NETWORKS, PROVIDER, WORKERS, Changes, Kind, Rule, flow_annotations

_ADDRESS = f"{NETWORKS}.zones[].natGateway.eipAllocationID"

CHANGES = Changes(
    machines=machines.MACHINES,
    hash_inputs=machines.hash_inputs,
    infrastructure=InfrastructureConfig,
    control_plane=ControlPlaneConfig,
    worker=None,
    rules={
        f"{NETWORKS}.zones[]": [
            Rule(Kind.IN_PLACE, "the zone gets a VSwitch, and egressCIDRs its address", "ALI-U2")
        ],
        _ADDRESS: [
            Rule(Kind.EGRESS, "the SNAT entry of the zone gets another address", "ALI-U2"),
            Rule(
                Kind.LASTING,
                "the address that Gardener made is deleted for good",
                "ALI-U2",
                lambda old, new: old is None,
            ),
        ],
        f"{PROVIDER}.controlPlaneConfig.csi": [
            Rule(Kind.IN_PLACE, "the disk CSI driver is updated; it may fail to mount old volumes")
        ],
        f"{WORKERS}[].volume.encrypted": [
            Rule(
                Kind.OPERATION,
                "the image is copied first: annotate gardener.cloud/operation=maintain",
                "ALI-W5",
                lambda old, new: new is True,
            )
        ],
    },
    annotations=flow_annotations("alicloud"),
)
