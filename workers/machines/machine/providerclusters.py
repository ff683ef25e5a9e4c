"""Which provider cluster a Secret leads to, as runs have found out: Pods of others are no machine's."""

from __future__ import annotations

from workers.core.owned.targets import TargetClusters
from workers.machines.machine.run import MachineRun
from workers.machines.machine.specs import SecretName

_MOST = 4096


class ProviderClusters:
    """By cluster and name of the Secret. What is forgotten is asked for again, by opening the cluster."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets
        self._known: dict[tuple[str, SecretName], str] = {}

    def note(self, run: MachineRun, secret: SecretName, cluster: str) -> None:
        """Remember where the Secret leads to now."""
        self._known.pop((run.ref.cluster, secret), None)
        self._known[run.ref.cluster, secret] = cluster
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    async def of(self, run: MachineRun, secret: SecretName) -> str:
        """The id of the cluster that the Secret leads to."""

        async def act() -> str:
            known = self._known.get((run.ref.cluster, secret))
            if known is None:
                async with self._targets.provider(run.run, *secret) as target:
                    known = target.cluster
                self.note(run, secret, known)
            return known

        return str(await run.recorder.call("provider cluster", "/".join(secret), act))
