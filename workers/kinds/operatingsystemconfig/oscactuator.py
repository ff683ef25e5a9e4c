"""Makes scripts for new machines, and tells what else is to be on those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from windowbox.errors import Malformed, WindowboxError
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.refs import OPERATING_SYSTEM_CONFIGS, SECRETS, ObjectRef
from workers.core.lifecycle import statuses
from workers.core.lifecycle.kinds import Actuator, Kind, Run, Status
from workers.core.owned.manifests import Manifest
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
    """Leaves nothing behind but a Secret, which the cluster removes with its owner."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets

    async def reconcile(self, run: Run) -> Status:
        spec = oscvalidation.parsed(run.object)
        if spec.purpose == oscvalidation.RECONCILE:
            return oscobjects.kept(spec)
        name = oscobjects.result_name(run.object)
        secrets = await self._secrets(run, spec)
        script = oscobjects.script(spec, lambda ref: secrets[ref.name].get(ref.data_key, b""))
        await self._store(run, oscobjects.result(run.object, name, script))
        return oscobjects.provisioned(run.ref.namespace, name)

    async def delete(self, run: Run) -> None:
        """Nothing: the Secret has an owner."""

    async def _secrets(self, run: Run, spec: OperatingSystemConfigSpec) -> dict[str, Mapping[str, bytes]]:
        """The data of all Secrets that files refer to. Nothing in them when a run is played back."""
        found: dict[str, Mapping[str, bytes]] = {}
        for name in _referenced(spec):
            ref = ObjectRef(run.ref.cluster, SECRETS.id, run.ref.namespace, name)
            found[name] = await run.recorder.secret(ref, partial(_fit, spec, name)) or {}
        return found

    async def _store(self, run: Run, secret: Manifest) -> None:
        try:
            await self._targets.own_cluster(run).ensure_secret(secret)
        except WindowboxError as error:
            error.headline = _NOT_STORED
            raise


def _referenced(spec: OperatingSystemConfigSpec) -> list[str]:
    named = (file.content.secret_ref.name for file in spec.files or () if file.content.secret_ref)
    return list(dict.fromkeys(named))


def _fit(spec: OperatingSystemConfigSpec, name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The data of the Secret `name`, if it can be transmitted as the files want it."""
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
