"""Which floating pools and load balancer providers a CloudProfile allows (OST-P7, OST-P8). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from clouds.openstack.api import FloatingPool, LoadBalancerProvider


def allowed_providers(providers: Sequence[LoadBalancerProvider], region: str) -> list[str]:
    """OST-P8: those of the region, else those without a region."""
    regional = [one.name for one in providers if one.region == region]
    return regional or [one.name for one in providers if one.region is None]


def choice(
    pools: Sequence[FloatingPool], domain: str, region: str, name: str
) -> FloatingPool | frozenset[str]:
    """OST-P7: the pool with this name that a Shoot gets, or the names that it may have.

    Pools of the domain and the region count first, then those of one of them, then all others. Where a level
    constrains, later levels count with their `nonConstraining` pools only.
    """
    both = _Level(pools, domain, region, name, constrained=False)
    if both.found is not None:
        return both.found
    constrained = bool(both.names)
    of_region = _Level(pools, None, region, name, constrained)
    of_domain = _Level(pools, domain, None, name, constrained)
    if of_region.found is not None and (of_domain.found is not None or not of_domain.names):
        return of_region.found
    if of_domain.found is not None and not of_region.names:
        return of_domain.found
    names = both.names
    if of_region.names and of_domain.names:
        names = of_region.names & of_domain.names
    elif of_region.names or of_domain.names:
        names = of_region.names or of_domain.names
    plain = _Level(pools, None, None, name, constrained=bool(names))
    if plain.found is not None:
        return plain.found
    levels = (both, of_region, of_domain, plain)
    return frozenset(names | plain.names).union(*(one.additional for one in levels))


class _Level:
    """The pools with just this domain and this region."""

    def __init__(
        self,
        pools: Sequence[FloatingPool],
        domain: str | None,
        region: str | None,
        name: str,
        constrained: bool,
    ) -> None:
        these = [one for one in pools if (one.domain, one.region) == (domain, region)]
        counted = [one for one in these if one.non_constraining or not constrained]
        self.names = {one.name for one in counted if not one.non_constraining}
        self.additional = {one.name for one in these if one.non_constraining}
        matching = [(_score(one.name, name), one) for one in counted]
        best = max((score for score, _ in matching if score is not None), default=None)
        self.found = next((one for score, one in matching if score is not None and score == best), None)


def _score(pattern: str, name: str) -> int | None:
    """How well a name matches a pattern with `*` at its start or end; None if it does not."""
    if pattern == "*":
        return 0
    if pattern.startswith("*"):
        return len(pattern) if name.endswith(pattern[1:]) else None
    if pattern.endswith("*"):
        return len(pattern) if name.startswith(pattern[:-1]) else None
    return 1 << 30 if pattern == name else None
