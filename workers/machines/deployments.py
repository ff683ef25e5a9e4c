"""The spec of a MachineDeployment, parsed strictly: people write it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, mapping
from workers.machines import facts
from workers.machines.facts import number, strings

_PERCENT = re.compile(r"\d{1,4}%")
_MOST = 2**31 - 1


@dataclass(frozen=True)
class DeploymentSpec:
    """The spec of a MachineDeployment, with surge and unavailability as numbers of machines."""

    replicas: int
    selector: Mapping[str, Any]
    template: Mapping[str, Any]
    strategy: StrategyType
    surge: int
    unavailable: int
    configured_surge: int
    """The surge in the spec, for limits that apply with every strategy."""
    manual: bool
    """Whether a person chooses the nodes that are updated in place."""
    paused: bool
    rollback: int | None
    """The revision to return to; 0 is the one before."""
    deadline: int | None
    """Seconds within which a rollout has to progress."""
    history: int | None
    """How many old MachineSets are kept; None for all."""
    min_ready: int
    auto_preserve: int

    @property
    def min_available(self) -> int:
        return self.replicas - self.unavailable


def spec(deployment: Object) -> DeploymentSpec | None:
    """The spec; None if it is invalid."""
    try:
        return checked(deployment)
    except Malformed:
        return None


def lenient(deployment: Object) -> DeploymentSpec:
    """The spec for a deletion: one that asks for nothing if the deployment's own is invalid."""
    return spec(deployment) or checked(Object({"spec": {"strategy": {"type": StrategyType.RECREATE}}}))


def too_many(replicas: int, most: int) -> str:
    """Why there may not be as many machines; empty if there may."""
    if replicas <= most:
        return ""
    return f"spec.replicas is {replicas}: choose at most {most}, or raise the setting machines.max_replicas"


def checked(deployment: Object, most: int = _MOST) -> DeploymentSpec:
    """The spec; Malformed, with field and remedy, if it is invalid or asks for more than `most` machines."""
    content = deployment.spec
    wanted = content.get("replicas", 0)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= _MOST:
        raise Malformed(f"spec.replicas is {wanted!r:.40}: make it a number that is not negative")
    if why := too_many(wanted, most):
        raise Malformed(why)
    template, selector = mapping(content.get("template")), mapping(content.get("selector"))
    labels = strings(mapping(mapping(template.get("metadata")).get("labels")))
    if (selector.get("matchLabels") or selector.get("matchExpressions")) and not facts.selects(
        selector, labels
    ):
        raise Malformed(
            "spec.selector does not match spec.template.metadata.labels: correct one of them, so that the "
            "deployment finds its machines"
        )
    strategy = mapping(content.get("strategy"))
    kind = strategy.get("type") or StrategyType.ROLLING_UPDATE
    if kind not in set(StrategyType):
        raise Malformed(f"spec.strategy.type is {kind!r:.40}: make it one of {', '.join(StrategyType)}")
    field = {"RollingUpdate": "rollingUpdate", "InPlaceUpdate": "inPlaceUpdate"}.get(str(kind), "")
    limits = mapping(strategy.get(field))
    if field and not limits:
        raise Malformed(f"spec.strategy.{field} is missing: give it maxSurge and maxUnavailable")
    where = f"spec.strategy.{field}"
    manual = kind == StrategyType.IN_PLACE_UPDATE and limits.get("orchestrationType") == "Manual"
    surge = _share(limits.get("maxSurge"), wanted, f"{where}.maxSurge", up=True)
    unavailable = _share(limits.get("maxUnavailable"), wanted, f"{where}.maxUnavailable", up=False)
    rollback, deadline = content.get("rollbackTo"), content.get("progressDeadlineSeconds")
    history = content.get("revisionHistoryLimit")
    fenced = fenceposts(0 if manual else surge, unavailable, wanted) if field else (0, 0)
    return DeploymentSpec(
        replicas=wanted,
        selector=selector,
        template=template,
        strategy=StrategyType(str(kind)),
        # Gardener's own adds the surge to the replicas only during a rollout.
        surge=fenced[0],
        unavailable=fenced[1],
        configured_surge=surge,
        manual=manual,
        paused=content.get("paused") is True,
        rollback=number(mapping(rollback).get("revision")) if isinstance(rollback, Mapping) else None,
        deadline=number(deadline) if deadline is not None else None,
        history=number(history) if history is not None else None,
        min_ready=number(content.get("minReadySeconds")),
        auto_preserve=number(content.get("autoPreserveFailedMachineMax")),
    )


def fenceposts(surge: int, unavailable: int, replicas: int) -> tuple[int, int]:
    """Surge and unavailability that let a rollout progress: never both zero."""
    if replicas == 0:
        return surge, 0
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, replicas)


def _share(value: Any, of: int, field: str, *, up: bool) -> int:
    """The number of machines that a number or a percentage of `of` stands for."""
    if value is None:
        return 0
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        share = int(value[:-1]) * of / 100
        return math.ceil(share) if up else math.floor(share)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    raise Malformed(f"{field} is {value!r:.40}: make it a number that is not negative, or a percentage")
