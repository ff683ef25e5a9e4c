"""Features that can be switched on or off by name, as Gardener's components have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """The maturity of a feature."""

    ALPHA = "alpha"
    """Off by default; it may change, or be removed."""
    BETA = "beta"
    """On by default."""
    GA = "GA"
    """Always on."""


@dataclass(frozen=True)
class Feature:
    """One feature gate."""

    name: str
    stage: Stage
    about: str
    pools: frozenset[str] = frozenset()
    """The pools that are not served while it is off."""

    @property
    def on(self) -> bool:
        """Whether it is on by default."""
        return self.stage is not Stage.ALPHA

    def __str__(self) -> str:
        return f"{self.name} ({self.stage}, {'on' if self.on else 'off'})"


FEATURES = (
    Feature("IngressRecords", Stage.BETA, "a DNSRecord for each host of Ingresses", frozenset({"ingress"})),
    Feature(
        "SelfHostedShootExposures",
        Stage.BETA,
        "SelfHostedShootExposures, alpha in Gardener",
        frozenset({"exposure"}),
    ),
)


def refusal(gates: Mapping[str, bool], known: Iterable[Feature] = FEATURES) -> str | None:
    """Why these features cannot be switched so; None if they can."""
    by_name = {feature.name: feature for feature in known}
    for name, on in gates.items():
        feature = by_name.get(name)
        if feature is None:
            return f"unknown feature {name!r}; known are {', '.join(map(str, by_name.values()))}"
        if feature.stage is Stage.GA and not on:
            return f"feature {name} is {feature.stage}: it cannot be switched off"
    return None


def unserved(gates: Mapping[str, bool], known: Iterable[Feature] = FEATURES) -> frozenset[str]:
    """The pools that are not served, because their features are off."""
    off = (feature.pools for feature in known if not gates.get(feature.name, feature.on))
    return frozenset[str]().union(*off)
