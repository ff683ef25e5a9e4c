"""Load balancers of OpenStack: Octavia, in the classes of the Shoot's ControlPlaneConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clouds.frame.balancers import (
    Annotation,
    Balancer,
    Balancers,
    Change,
    Values,
    choice,
    duration,
    flag,
    one_address,
)
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object, mappings

_PREFIX = "loadbalancer.openstack.org/"
_CLASS = f"{_PREFIX}class"
_MOST_CLASSES = 32
_VERSIONS: dict[str, Change] = {
    "true": {"proxy_protocol": 1},
    "v1": {"proxy_protocol": 1},
    "v2": {"proxy_protocol": 2},
    "false": {},
}


def _named(config: Mapping[str, Any]) -> tuple[str, ...]:
    """OST-C7: without a default, the first class is that."""
    found = [one for one in mappings(config.get("loadBalancerClasses")) if isinstance(one.get("name"), str)]
    found = found[:_MOST_CLASSES]
    found.sort(key=lambda one: "default" not in (one.get("purpose"), one["name"]))
    return tuple(one["name"] for one in found)


def _class(given: str) -> Change:
    return {"range": given}


def _limit(given: str) -> Change | None:
    if given == "-1":
        return {}
    number = int(given) if given.isascii() and given.isdecimal() and len(given) <= 9 else 0
    return {"max_connections": number} if number else None


def _finish(found: Balancer, service: Object, facts: CloudFacts) -> Balancer:
    """OST-C2, OST-C3 and OST-C7. Internal ones have no floating address, and so no class."""
    if found.internal:
        return replace(found, range="")
    if not found.range:
        return replace(found, range=facts.classes[0] if facts.classes else "")
    if found.range in facts.classes:
        return found
    known = ", ".join(facts.classes) or "none"
    note = f'annotation {_CLASS} is "{found.range:.64}": the classes of the Shoot are {known}'
    return replace(found, rejected=(note,))


BALANCERS = Balancers(
    usual=Balancer(first_family_only=True),
    says="an address of the Service's first family, from the range of the Shoot's default class",
    annotations=(
        Annotation(
            "service.beta.kubernetes.io/openstack-internal-load-balancer",
            flag({"internal": True}),
            "`true`: clients outside the networks of nodes and Pods are refused",
        ),
        Annotation(
            _CLASS,
            Values("give a class of the Shoot's ControlPlaneConfig", _class),
            "the address is of the range with the name of the class, if there is one",
            "OST-C2, OST-C3, OST-C7",
        ),
        Annotation(
            f"{_PREFIX}proxy-protocol",
            choice(_VERSIONS, ignore_case=True),
            "`true` or `v1`, and `v2`: backends get a PROXY header of that version",
        ),
        Annotation(
            f"{_PREFIX}load-balancer-address",
            one_address(),
            "the address that it has to get",
        ),
        Annotation(
            f"{_PREFIX}timeout-client-data",
            duration(0.001, 1000, 86_400_000),
            "milliseconds until an idle connection is closed",
        ),
        Annotation(
            f"{_PREFIX}connection-limit",
            Values("give a number above 0, or -1", _limit),
            "connections to each port",
        ),
        Annotation(
            f"{_PREFIX}x-forwarded-for",
            Values("remove it, or use proxy-protocol: HTTP is not read here", {"false": {}}.get),
            "`true` is refused: HTTP is not read",
        ),
    ),
    ignored=(
        f"{_PREFIX}availability-zone",
        f"{_PREFIX}enable-health-monitor",
        f"{_PREFIX}flavor-id",
        f"{_PREFIX}floating-network-id",
        f"{_PREFIX}keep-floatingip",
        f"{_PREFIX}network-id",
        f"{_PREFIX}subnet-id",
        f"{_PREFIX}timeout-member-*",
    ),
    named=_named,
    finish=_finish,
)
