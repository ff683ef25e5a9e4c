"""What updates of Shoots of type gcp do. Inputs of the hash need no rule: nodes are rolled by it."""

from __future__ import annotations

from clouds.frame.changes.effects import NETWORKS, WORKERS, Changes, Kind, Rule, flow_annotations, given_up
from clouds.gcp import machines
from clouds.gcp.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig

_NAT = Rule(Kind.IN_PLACE, "Cloud NAT is updated; its addresses stay")
_SUBNET = Rule(Kind.IN_PLACE, "the subnet of internal load balancers is made, or deleted")
_LOGS = Rule(Kind.IN_PLACE, "the flow logs of the subnets are updated")

CHANGES = Changes(
    machines=machines.MACHINES,
    hash_inputs=machines.hash_inputs,
    infrastructure=InfrastructureConfig,
    control_plane=ControlPlaneConfig,
    worker=WorkerConfig,
    rules={
        f"{NETWORKS}.vpc": [
            Rule(
                Kind.EGRESS,
                "subnets and NAT are made in that VPC; machines of the former one lose theirs",
                "GCP-U1",
                lambda old, new: not old,
            )
        ],
        f"{NETWORKS}.workers": [Rule(Kind.IN_PLACE, "the subnet of the nodes is expanded", "GCP-U2")],
        f"{NETWORKS}.internal": [_SUBNET],
        f"{NETWORKS}.flowLogs": [_LOGS],
        f"{NETWORKS}.cloudNAT": [_NAT],
        f"{NETWORKS}.cloudNAT.natIPNames": [
            Rule(Kind.EGRESS, "Cloud NAT gives up a former address", when=given_up),
            Rule(Kind.IN_PLACE, "Cloud NAT gets further addresses, egressCIDRs too"),
        ],
        f"{WORKERS}[].providerConfig.nodeTemplate": [
            Rule(Kind.IN_PLACE, "the autoscaler expects it of machines that are made later", "GCP-W10")
        ],
    },
    annotations={
        **flow_annotations("gcp"),
        "gcp.provider.extensions.gardener.cloud/enable-volume-attributes-class": [
            Rule(Kind.IN_PLACE, "the CSI driver is updated")
        ],
    },
)
