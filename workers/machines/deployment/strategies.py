"""Which step of a MachineDeployment is next: by its strategy."""

from __future__ import annotations

from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from workers.machines.deployment import inplace, rollout, scaling
from workers.machines.deployment.rollout import DeploymentRun


async def advance(run: DeploymentRun) -> None:
    """One step: scale, or roll, never both."""
    state = run.state
    if state.spec.paused:
        await rollout.scale(run, scaling.sizes(state), all_annotated=True)
        await rollout.clean_up(run)
    elif scaling.is_scaling(state):
        await rollout.follow(run)
        await rollout.scale(run, scaling.sizes(run.state), all_annotated=True)
    elif state.spec.strategy == StrategyType.IN_PLACE_UPDATE and state.old:
        await inplace.update(run)
    else:
        if state.new and keys.SCALE_UP_DISABLED in state.new.labels:
            await inplace.unmark_newest(run)
        is_recreating = state.spec.strategy == StrategyType.RECREATE
        await (rollout.recreate(run) if is_recreating else rollout.roll(run))
