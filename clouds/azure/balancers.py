"""Load balancers of Azure: the standard load balancer."""

from __future__ import annotations

from clouds.frame.balancers import Annotation, Balancer, Balancers, duration, flag, one_address

_PREFIX = "service.beta.kubernetes.io/azure-"

BALANCERS = Balancers(
    usual=Balancer(keeps_source=True),
    says="a public address of each family of the Service",
    annotations=(
        Annotation(
            f"{_PREFIX}load-balancer-internal",
            flag({"internal": True}),
            "`true`: clients outside the networks of nodes and Pods are refused",
        ),
        Annotation(f"{_PREFIX}load-balancer-ipv4", one_address(), "the address that it has to get"),
        Annotation(
            f"{_PREFIX}load-balancer-tcp-idle-timeout",
            duration(60.0, 4, 100),
            "minutes until an idle connection is closed",
        ),
    ),
    ignored=(
        f"{_PREFIX}dns-label-name",
        f"{_PREFIX}load-balancer-disable-tcp-reset",
        f"{_PREFIX}load-balancer-health-probe-*",
        f"{_PREFIX}load-balancer-internal-subnet",
        f"{_PREFIX}load-balancer-resource-group",
        f"{_PREFIX}pip-name",
    ),
)
