"""What `windowbox trace` says that a Machine waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.machine.machines import Machines
from tests.support import traces

pytestmark = pytest.mark.serves("machine")


async def test_an_unknown_machine_waits_for_its_health_timeout(made: Machines, tmp_path: Path) -> None:
    await made.machine("sick", healthTimeout="10m")
    await made.until("sick", "Running")
    await made.simulator.node("machine-sick", Ready="False")
    await made.until("sick", "Unknown")
    [told] = await traces.waiting(made.shoot, "machine", "sick", tmp_path)
    assert told["title"].startswith("machine: again at ")
    assert told["title"].endswith((", in 10 min (due)", ", in 9 min (due)"))
    assert told["details"][0] == "because: the machine is Failed then, unless its node is healthy before"
    assert len(told["details"]) == 1
