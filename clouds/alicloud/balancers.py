"""Load balancers of Alibaba Cloud: Classic Load Balancers."""

from __future__ import annotations

from typing import Any

from clouds.frame.balancers import Annotation, Balancer, Balancers, annotated, choice
from windowbox.models.objects import Json, mapping

_PREFIX = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-"


def _admit(service: Json, old: Json | None) -> Json:
    """ALI-X1, with the extension's default size."""
    spec, before = mapping(service.get("spec")), mapping(mapping(old).get("spec"))
    if spec.get("type") != "LoadBalancer":
        return service
    local: dict[str, Any] = {"externalTrafficPolicy": "Local"}
    if before.get("externalTrafficPolicy") == "Local" and not spec.get("healthCheckNodePort"):
        local["healthCheckNodePort"] = before.get("healthCheckNodePort")
    return annotated({**service, "spec": {**spec, **local}}, {f"{_PREFIX}spec": "slb.s1.small"})


BALANCERS = Balancers(
    usual=Balancer(families=("IPv4",), keeps_source=True),
    says="a public IPv4 address, and only nodes with Pods of the Service get traffic",
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
    admit=_admit,
)
