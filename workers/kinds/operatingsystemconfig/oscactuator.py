"""OperatingSystemConfigs: a script for new machines, and extra units for existing ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from windowbox.errors import Malformed, WindowboxError
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.refs import OPERATING_SYSTEM_CONFIGS, SECRETS, ObjectRef
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status
from workers.core.owned.targets import TargetClusters
from workers.kinds.operatingsystemconfig import oscobjects, oscvalidation

KIND = Kind(
    resource=OPERATING_SYSTEM_CONFIGS,
    pool="operatingsystemconfig",
    finalizer="extensions.gardener.cloud/operatingsystemconfigs",
    descriptions=statuses.descriptions_for("OperatingSystemConfig"),
    classes=frozenset({"shoot"}),
    deadline=180.0,
    migrates_only_with_finalizer=True,
)

_NOT_STORED = "Could not apply secret for generated cloud config"


class OperatingSystemConfigActuator(Actuator):
    """Creates a Secret, which the garbage collector removes with its owner."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets

    async def reconcile(self, run: Run) -> Status:
        spec = oscvalidation.parsed(run.object)
        if spec.purpose == oscvalidation.RECONCILE:
            return oscobjects.kept(spec)
        name = oscobjects.result_name(run.object)
        secrets = await self._secrets(run, spec)
        script = oscobjects.script(spec, lambda ref: secrets[ref.name].get(ref.data_key, b""))
        try:
            await self._targets.own_cluster(run).ensure_secret(oscobjects.result(run.object, name, script))
        except WindowboxError as error:
            error.headline = _NOT_STORED
            raise
        return oscobjects.provisioned(run.ref.namespace, name)

    async def delete(self, run: Run) -> None:
        """Nothing to do: the garbage collector removes the Secret."""

    async def _secrets(self, run: Run, spec: OperatingSystemConfigSpec) -> dict[str, Mapping[str, bytes]]:
        """The data of all Secrets that files refer to; empty in a replay."""
        found: dict[str, Mapping[str, bytes]] = {}
        named = [file.content.secret_ref.name for file in spec.files or () if file.content.secret_ref]
        for name in dict.fromkeys(named):
            ref = ObjectRef(run.ref.cluster, SECRETS.id, run.ref.namespace, name)
            found[name] = await run.recorder.secret(ref, partial(_fit, spec, name)) or {}
        return found


def _fit(spec: OperatingSystemConfigSpec, name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The data of the Secret `name`. Malformed if a file cannot transmit it unencoded."""
    for number, file in enumerate(spec.files or ()):
        ref = file.content.secret_ref
        if not ref or ref.name != name or not file.content.transmit_unencoded:
            continue
        if oscvalidation.unfit_for_raw(data.get(ref.data_key, b"")):
            raise Malformed(
                f"spec.files[{number}].content: the key {ref.data_key!r} of Secret {name} "
                f"{oscvalidation.RAW_REMEDY}"
            )
    return data
