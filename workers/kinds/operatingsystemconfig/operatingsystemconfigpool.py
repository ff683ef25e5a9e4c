"""OperatingSystemConfigs: the Secret with the script for new machines."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from windowbox.errors import Malformed, WindowboxError
from windowbox.kinds import Served
from windowbox.models.gardener import operatingsystemconfig as osc
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.objects import Object
from windowbox.models.refs import OPERATING_SYSTEM_CONFIGS, SECRETS, ObjectRef
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status
from workers.core.owned.manifests import Manifest, manifest
from workers.core.owned.targets import TargetClusters
from workers.core.serving import Common, Serving
from workers.kinds.operatingsystemconfig import oscscripts, oscvalidation

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
            return kept(spec)
        name = result_name(run.object)
        secrets = await self._secrets(run, spec)
        content = script(spec, lambda ref: secrets[ref.name].get(ref.data_key, b""))
        try:
            await self._targets.own_cluster(run).ensure_secret(result(run.object, name, content))
        except WindowboxError as error:
            error.headline = _NOT_STORED
            raise
        return provisioned(run.ref.namespace, name)

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


def serving(common: Common, row: Served) -> Serving:
    return Serving(KIND, OperatingSystemConfigActuator(common.targets))


SCRIPT = "cloud_config"
"""The Secret's key of the script."""

_LONGEST = 1048576
"""Bytes that a Secret can hold."""
_LONGEST_NAME = 253

_USER_SESSIONS = """\
[Unit]
Wants=systemd-tmpfiles-setup.service
After=systemd-tmpfiles-setup.service
[Install]
WantedBy=multi-user.target"""
"""In a machine that is a Pod nothing else pulls in that unit, and SSH refuses logins while /run/nologin
exists."""


def script(spec: osc.OperatingSystemConfigSpec, secret: Callable[[osc.FileSecret], bytes]) -> bytes:
    """The script for new machines; `secret` reads the data of a Secret."""
    files = [_file(file, secret) for file in spec.files or ()]
    units = [_unit(unit) for unit in spec.units or ()]
    made = oscscripts.script(files, units)
    if len(made) > _LONGEST:
        raise Malformed(
            f"spec.files and spec.units make a script of {len(made)} bytes, and a Secret holds {_LONGEST}: "
            f"move what is not needed at first into the one of purpose {oscvalidation.RECONCILE}"
        )
    return made


def _file(file: osc.File, secret: Callable[[osc.FileSecret], bytes]) -> oscscripts.File:
    content = file.content
    if content.secret_ref:
        data = secret(content.secret_ref)
    else:
        assert content.inline  # by validation
        data = oscvalidation.decoded(content.inline.data, content.inline.encoding)
    return oscscripts.File(file.path, data, file.permissions, raw=bool(content.transmit_unencoded))


def _unit(unit: osc.Unit) -> oscscripts.Unit:
    return oscscripts.Unit(
        unit.name,
        None if unit.content is None else unit.content.encode(),
        tuple((drop_in.name, drop_in.content.encode()) for drop_in in unit.drop_ins or ()),
    )


def result_name(object: Object) -> str:
    """The name of the script's Secret: the reported one, if any."""
    reported = (object.status.get("cloudConfig") or {}).get("secretRef") or {}
    name = str(reported.get("name") or f"osc-result-{object.name}")
    if len(name) > _LONGEST_NAME:
        raise Malformed(
            f"metadata.name is {object.name!r:.80}: the Secret {name!r:.80} would have more than "
            f"{_LONGEST_NAME} characters; choose a shorter one"
        )
    if not oscvalidation.is_secret_name(name):
        raise Malformed(f"status.cloudConfig.secretRef.name is {name!r:.80}: no Secret can be called so")
    return name


def result(object: Object, name: str, script: bytes) -> Manifest:
    """The Secret, owned by the object."""
    resource = OPERATING_SYSTEM_CONFIGS
    owner = {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "name": object.name,
        "uid": object.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    data = {SCRIPT: base64.b64encode(script).decode()}
    return manifest(SECRETS, name, object.namespace, owners=[owner], data=data)


def provisioned(namespace: str, name: str) -> Status:
    """The status for new machines. Fields of the other purpose are removed."""
    return {"cloudConfig": {"secretRef": {"name": name, "namespace": namespace}}, **_additions()}


def kept(spec: osc.OperatingSystemConfigSpec) -> Status:
    """The status for existing machines."""
    unit = {
        "name": "systemd-user-sessions.service",
        "dropIns": [{"name": "dependencies.conf", "content": _USER_SESSIONS}],
    }
    return _additions(units=[unit], updates=spec.in_place_updates and _updates(spec.in_place_updates))


def _additions(units: Any = None, updates: Any = None) -> Status:
    return {"extensionUnits": units, "extensionFiles": None, "inPlaceUpdates": updates}


def _updates(wanted: osc.InPlaceUpdates) -> dict[str, Any]:
    """The command of an in-place update: it only changes the name of the operating system."""
    name = (
        f"Machine Image Version {wanted.operating_system_version} "
        "(version overwritten for tests, check VERSION_ID for actual version)"
    )
    substitution = f's/^PRETTY_NAME="[^"]*"/PRETTY_NAME="{name}"/'
    return {"osUpdate": {"command": "sed", "args": ["-i", "-E", substitution, "/etc/os-release"]}}
