"""Runs of Bastions, recorded and done again: what they do is the same, and Secrets are not in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.api.bastion import bastions
from tests.api.bastion.bastions import yard
from tests.support.kindworld import KindWorld
from windowbox.models.refs import BASTIONS
from workers import replay

pytestmark = pytest.mark.serves("bastion")


async def test_recorded_runs_do_the_same_again(world: KindWorld) -> None:
    began = datetime.now(UTC)
    made = await yard(world)
    await made.create()
    await made.ready()
    await made.shoot.ask(BASTIONS, "cli", spec=bastions.spec("203.0.113.0/24"))
    await made.shoot.until_ready(BASTIONS, "cli")
    await made.shoot.ask(BASTIONS, "cli", spec=bastions.spec("nonsense"))
    await made.shoot.until_failed(BASTIONS, "cli")
    await made.gone()
    await world.quiet()
    recording = await world.recorded(began, "bastion")
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 6
    made_of_it = [str(call) for run in recording.runs for call in run.calls if call.effect]
    assert not any(bastions.spec()["userData"] in told for told in made_of_it)
