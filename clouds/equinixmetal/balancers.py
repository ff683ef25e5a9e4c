"""Load balancers of Equinix Metal: elastic addresses that nodes announce, without options."""

from __future__ import annotations

from clouds.frame.balancers import Balancer, Balancers

BALANCERS = Balancers(
    usual=Balancer(keeps_source=True),
    says="a public address of each family of the Service",
    ignored=("metal.equinix.com/eip-metro", "metal.equinix.com/facility"),
)
