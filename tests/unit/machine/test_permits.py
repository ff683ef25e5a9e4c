"""Which Machine of a MachineDeployment may be given up."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from windowbox.models.refs import RUNTIME
from workers.machines.machine.machineviews import KnownMachine, may_be_replaced


def machine(name: str, phase: str, since: int, *, preserved: bool = False) -> KnownMachine:
    at = f"2026-01-01T00:00:0{since}Z"
    return KnownMachine(RUNTIME, "shoot--l--d", name, name, "small", "pool", phase, at, preserved)


@rule("B9-R6")
@pytest.mark.parametrize(
    ("phases", "given_up"),
    [
        pytest.param(["Unknown", "Unknown"], "a", id="longest-unhealthy-first"),
        pytest.param(["Unknown", "Pending"], "", id="another-is-made"),
        pytest.param(["Unknown", "InPlaceUpdating"], "", id="another-is-updated"),
        pytest.param(["InPlaceUpdateFailed", "InPlaceUpdateFailed"], "a", id="updates-have-failed"),
        pytest.param(["InPlaceUpdateFailed", "Unknown"], "a", id="one-line-for-both"),
        pytest.param(["Failed", "InPlaceUpdateFailed"], "", id="another-is-replaced"),
    ],
)
def test_one_machine_is_given_up_at_a_time(phases: list[str], given_up: str) -> None:
    waiting = ("Unknown", "InPlaceUpdateFailed")
    found = [machine(name, phase, n) for n, (name, phase) in enumerate(zip("ab", phases, strict=True))]
    permitted = [one.name for one in found if one.phase in waiting and may_be_replaced(one.name, found)]
    assert "".join(permitted) == given_up
