"""Load balancers of AWS: classic ones of the cloud controller manager, and Network Load Balancers."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from clouds.frame.balancers import (
    Annotation,
    Balancer,
    Balancers,
    Change,
    ServiceClass,
    Values,
    annotated,
    choice,
    duration,
    unsupported,
)
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Json, Object, mappings

_PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
_CLASSIC, _NETWORK = "Classic Load Balancer", "Network Load Balancer"
_IS_NETWORK: Change = {"kind": _NETWORK, "keeps_source": True}
_BY_CONTROLLER: Change = {**_IS_NETWORK, "internal": True}
"""The load balancer controller makes internal ones unless told otherwise."""


def _internal(given: str) -> Change:
    """As the cloud controller manager reads it: anything but `false`."""
    return {"internal": given not in ("", "false")}


def _attributes(given: str) -> Change | None:
    """`key=value,key=value`."""
    pairs = [pair.partition("=") for pair in given.split(",")]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    known = {one: values.get(one) for one in ("preserve_client_ip.enabled", "proxy_protocol_v2.enabled")}
    if not set(known.values()) <= {None, "true", "false"}:
        return None
    keeps, proxy = known.values()
    return {
        **({"keeps_source": keeps == "true"} if keeps else {}),
        **({"proxy_protocol": 2 if proxy == "true" else None} if proxy else {}),
    }


def _admit(service: Json, _: Json | None) -> Json:
    """AWS-X6. The extension's webhook asks for kube-dns: ours is for Shoots with IPv6 only."""
    found = Object(service)
    scheme, internal = (found.annotations.get(f"{_PREFIX}{name}") for name in ("scheme", "internal"))
    if found.spec.get("type") != "LoadBalancer" or scheme == "internal" or internal == "true":
        return service
    wanted = {
        "ip-address-type": "dualstack",
        "scheme": "internet-facing",
        "nlb-target-type": "instance",
        "type": "external",
    }
    return annotated(service, {f"{_PREFIX}{name}": value for name, value in wanted.items()})


def _finish(found: Balancer, service: Object, facts: CloudFacts) -> Balancer:
    if found.kind == _CLASSIC:
        found = replace(found, families=("IPv4",), keeps_source=False)
        if any(port.get("protocol") == "UDP" for port in mappings(service.spec.get("ports"))):
            remedy = "set spec.loadBalancerClass to service.k8s.aws/nlb, or use TCP"
            found = replace(found, rejected=(f"a {_CLASSIC} carries no UDP: {remedy}",))
    elif found.proxy_protocol:
        found = replace(found, proxy_protocol=2)
    if found.kind == _NETWORK and found.keeps_source:
        # AWS-X5. Nodes reach IPv4 addresses of the internet by a NAT gateway.
        found = replace(found, hairpin=("IPv4", "IPv6") if found.internal else ("IPv6",))
    return replace(found, hostname=_hostname(found, service, facts.region)) if facts.region else found


def _hostname(found: Balancer, service: Object, region: str) -> str:
    """A name like those of AWS. A load balancer of another scheme, kind or family is a new one (AWS-X2)."""
    if found.kind == _CLASSIC:
        name = f"a{service.uid.replace('-', '')}"[:32]
        prefix = "internal-" if found.internal else ""
        return f"{prefix}{name}-{{number}}.{region}.elb.amazonaws.com"
    made = f"{service.uid}/{found.internal}/{found.families}"
    unique = hashlib.sha256(made.encode()).hexdigest()[:10]
    return (
        f"k8s-{_short(service.namespace)}-{_short(service.name)}-{unique}-{{id}}.elb.{region}.amazonaws.com"
    )


def _short(name: str) -> str:
    return name.replace("-", "").replace(".", "")[:8]


BALANCERS = Balancers(
    usual=Balancer(kind=_CLASSIC, families=("IPv4",)),
    says="a Classic Load Balancer with a host name, IPv4 only, open to all",
    annotations=(
        Annotation(
            f"{_PREFIX}type",
            choice({"nlb": _IS_NETWORK, "external": _BY_CONTROLLER}),
            "a Network Load Balancer: in the cloud, nodes see the client's address. Of type `external` an "
            "internal one, unless the scheme says otherwise",
            "AWS-X4",
        ),
        Annotation(
            f"{_PREFIX}internal",
            Values("remove it", _internal),
            "any value but `false`: clients outside the networks of nodes and Pods are refused",
        ),
        Annotation(
            f"{_PREFIX}scheme",
            choice({"internal": {"internal": True}, "internet-facing": {"internal": False}}),
            "`internal`: clients outside the networks of nodes and Pods are refused",
            "AWS-X1",
        ),
        Annotation(
            f"{_PREFIX}ip-address-type",
            choice({"ipv4": {}, "dualstack": {"families": ("IPv4", "IPv6"), "translates": True}}),
            "`dualstack`: an IPv6 address, too, under another host name at once; backends stay of the "
            "Service's first family. Classic ones have IPv4 only",
            "AWS-X1, AWS-X2",
        ),
        Annotation(
            f"{_PREFIX}nlb-target-type",
            Values("give instance: targets of type ip are not supported", {"instance": {}}.get),
            "`ip` is refused",
            "AWS-X4",
        ),
        Annotation(
            f"{_PREFIX}proxy-protocol",
            Values("give *, or remove it", {"*": {"proxy_protocol": 1}}.get),
            "`*`: backends get a PROXY header: version 1 of a Classic, 2 of a Network Load Balancer",
            "AWS-X1",
        ),
        Annotation(
            f"{_PREFIX}target-group-attributes",
            Values(
                "give true or false to preserve_client_ip.enabled and proxy_protocol_v2.enabled", _attributes
            ),
            "`preserve_client_ip.enabled=false`: nodes may reach themselves, see below; "
            "`proxy_protocol_v2.enabled=true`: PROXY headers",
            "AWS-X5",
        ),
        Annotation(
            f"{_PREFIX}connection-idle-timeout",
            duration(1.0, 1, 4000),
            "seconds until an idle connection is closed",
        ),
        Annotation(
            f"{_PREFIX}ssl-cert",
            unsupported("remove it: TLS is not terminated here, let the backend do it"),
            "any value is refused: TLS is not terminated",
        ),
    ),
    ignored=(
        f"{_PREFIX}additional-resource-tags",
        f"{_PREFIX}attributes",
        f"{_PREFIX}backend-protocol",
        f"{_PREFIX}cross-zone-load-balancing-enabled",
        f"{_PREFIX}healthcheck-*",
        f"{_PREFIX}name",
        f"{_PREFIX}subnets",
    ),
    classes={
        "service.k8s.aws/nlb": ServiceClass(
            _BY_CONTROLLER, "as of type `external`; served in this cloud only"
        )
    },
    admit=_admit,
    finish=_finish,
)
