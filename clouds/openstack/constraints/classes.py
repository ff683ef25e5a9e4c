"""Load balancer classes, in CloudProfiles and in ControlPlaneConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clouds.frame.problems import Problem, duplicate, forbidden, invalid
from clouds.openstack.api import LoadBalancerClass

_PURPOSES = ("default", "private", "vpn")
_UNIQUE = ("default", "private")


def problems(classes: Sequence[LoadBalancerClass], path: str) -> Iterator[Problem]:
    """OST-C3 to OST-C5."""
    names: set[str] = set()
    special: set[str] = set()
    for i, one in enumerate(classes):
        where = f"{path}[{i}]"
        if one.purpose is not None and one.purpose not in _PURPOSES:
            yield invalid(
                where, one.purpose, "is no purpose of a load balancer class: use default or private"
            )
        subnets = (one.floating_subnet_id, one.floating_subnet_name, one.floating_subnet_tags)
        if sum(each is not None for each in subnets) > 1:
            yield forbidden(
                where, "select the floating subnet by one of its ID, name and tags: remove the others"
            )
        if one.name in names:
            yield duplicate(f"{where}.name", one.name)
        names.add(one.name)
        for purpose in _UNIQUE:
            if purpose in (one.purpose, one.name):
                if purpose in special:
                    detail = f"not allowed to configure multiple {purpose} load balancer classes: keep one"
                    yield invalid(path, one.name, detail)
                special.add(purpose)


def are_alike(one: LoadBalancerClass, other: LoadBalancerClass) -> bool:
    """OST-C6: equal in all fields but name and purpose."""
    return one.model_copy(update={"name": other.name, "purpose": other.purpose}) == other
