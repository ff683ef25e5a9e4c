"""Load balancers of Alibaba Cloud: Classic Load Balancers."""

from __future__ import annotations

from clouds.frame.balancers import Annotation, Balancer, Balancers, choice

_PREFIX = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-"

BALANCERS = Balancers(
    usual=Balancer(families=("IPv4",), keeps_source=True),
    says="a public IPv4 address",
    annotations=(
        Annotation(
            f"{_PREFIX}address-type",
            choice({"internet": {}, "intranet": {"internal": True}}, ignore_case=True),
            "`intranet`: clients outside the networks of nodes and Pods are refused",
        ),
        Annotation(
            f"{_PREFIX}ip-version",
            choice({"ipv4": {}, "ipv6": {"families": ("IPv6",)}}, ignore_case=True),
            "`ipv6`: an IPv6 address instead",
        ),
        Annotation(
            f"{_PREFIX}proxy-protocol",
            choice({"on": {"proxy_protocol": 2}, "off": {}}, ignore_case=True),
            "`on`: backends get a PROXY header of version 2",
        ),
    ),
    ignored=(
        f"{_PREFIX}bandwidth",
        f"{_PREFIX}charge-type",
        f"{_PREFIX}connection-drain",
        f"{_PREFIX}force-override-listeners",
        f"{_PREFIX}health-check-*",
        f"{_PREFIX}id",
        f"{_PREFIX}spec",
    ),
)
