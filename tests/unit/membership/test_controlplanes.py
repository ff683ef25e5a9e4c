"""Which Shoots take part by their ControlPlane, and when they sleep."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.kinds.membership import shootmembership
from workers.kinds.membership.shootmembership import ControlPlanes, Replicas

FINALIZER = "extensions.gardener.cloud/controlplane"


def controlplane(type_: str = "local", finalizer: str = FINALIZER, **status: Any) -> Object:
    return Object({"metadata": {"finalizers": [finalizer]}, "spec": {"type": type_}, "status": status})


@pytest.mark.parametrize(
    ("found", "takes_part"),
    [
        pytest.param(controlplane(observedGeneration=1), True, id="reconciled"),
        pytest.param(controlplane(), False, id="no-access-yet"),
        pytest.param(controlplane("other", observedGeneration=1), False, id="of-another-provider"),
        pytest.param(controlplane(finalizer="other", observedGeneration=1), False, id="handed-over"),
    ],
)
def test_a_shoot_takes_part_while_its_control_plane_is_ours(found: Object, takes_part: bool) -> None:
    assert shootmembership.taking_part(found) is takes_part


def test_the_member_has_the_access_that_the_control_plane_makes() -> None:
    shoot = ShootFacts(technical_id="shoot--a--b", managed_infrastructure=True)
    made = shootmembership.member("shoot--a--b", shoot)
    assert made.secret
    assert (made.secret.namespace, made.secret.name, made.secret.key) == (
        "shoot--a--b",
        "shoot-access-windowbox",
        "kubeconfig",
    )
    assert made.machines
    assert made.machines.namespace == "infra-shoot--a--b"


AWAKE = ShootFacts()
ENABLED = ShootFacts(hibernation_enabled=True)
COMPLETE = ShootFacts(hibernation_enabled=True, hibernated=True)
"""As gardenlet says when all has ended."""


@rule("C-7", "C-10")
@pytest.mark.parametrize(
    ("shoot", "server", "was_asleep", "asleep"),
    [
        pytest.param(ENABLED, Replicas(1, 1), False, False, id="C-7-machines-go-first"),
        pytest.param(ENABLED, Replicas(0, 1), False, True, id="C-7-ended"),
        pytest.param(ENABLED, Replicas(0, 0), True, True, id="C-7-still"),
        pytest.param(COMPLETE, Replicas(1, 1), False, False, id="C-7-its-server-counts-where-it-is-seen"),
        pytest.param(AWAKE, Replicas(1, 0), True, True, id="C-7-starting"),
        pytest.param(AWAKE, Replicas(1, 1), True, False, id="C-7-awake-again"),
        pytest.param(AWAKE, Replicas(1, 0), False, False, id="C-7-restarted"),
        pytest.param(ENABLED, None, False, False, id="C-7-machines-go-first-elsewhere"),
        pytest.param(COMPLETE, None, False, True, id="C-7-ended-elsewhere"),
        pytest.param(ENABLED, None, True, True, id="C-7-still-elsewhere"),
        pytest.param(AWAKE, None, True, False, id="C-7-awake-again-elsewhere"),
    ],
)
def test_when_a_shoot_sleeps(
    shoot: ShootFacts, server: Replicas | None, was_asleep: bool, asleep: bool
) -> None:
    assert shootmembership.is_asleep(shoot, server, was_asleep=was_asleep) is asleep


@pytest.mark.parametrize("asleep", [True, False])
def test_a_shoot_sleeps_as_before_while_the_bus_may_lack_something(asleep: bool) -> None:
    """A bus that was made anew holds neither Clusters nor API servers."""
    unread = ControlPlanes(cast(Any, None), lambda: None)
    made = shootmembership.member("shoot--a--b", ShootFacts(technical_id="shoot--a--b"))
    before = made.model_copy(update={"asleep": asleep})
    assert unread.put_to_sleep(made, before) == before
    assert not unread.put_to_sleep(made, None).asleep
