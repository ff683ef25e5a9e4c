"""The specs of Machines and MachineClasses, parsed strictly: tenants write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from clouds.frame.machineclasses import Instance
from windowbox.errors import Malformed
from windowbox.models import durations
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import MachineSettings
from workers.machines import names

_PROVIDER = "local"
_CLASS = "MachineClass"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_IMAGE = re.compile(r"[!-~]{1,1024}")
_ZONE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OPTIONAL_ZONE = re.compile(rf"({_ZONE.pattern})?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_RESOURCE = re.compile(r"[a-z0-9]([a-zA-Z0-9./-]{0,250}[a-zA-Z0-9])?")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_LONGEST = 10 * 365 * 86400.0
"""Seconds. Larger ones overflow when they are added to a time."""
MOST = 32
"""Limit of resources, of volumes, and of reservations."""


class SecretName(NamedTuple):
    namespace: str
    name: str


@dataclass(frozen=True)
class Volume:
    name: str
    size: str


@dataclass(frozen=True)
class ProviderSpec:
    """The class's `providerSpec`: Gardener's fields, and those that the setting `machines.resources` adds."""

    image: str
    namespace: str = ""
    ip_pool_v4: str = ""
    ip_pool_v6: str = ""
    zone: str = ""
    resources: Mapping[str, Mapping[str, str]] | None = None
    """Requests, and limits."""
    volumes: tuple[Volume, ...] = ()
    """emptyDirs with a size limit; `root` is the one for container images."""


@dataclass(frozen=True)
class MachinePlan:
    """The objects that one Machine asks for."""

    home: str
    """The namespace of the Machine."""
    machine: str
    namespace: str
    """The namespace of the Pod."""
    provider: ProviderSpec
    user_data: SecretName
    credentials: SecretName
    provider_id: str
    never_created: bool = False
    """The cloud accepts what the class asks for, and never finishes it."""


@dataclass(frozen=True)
class Timeouts:
    """The timeouts of a Machine, in seconds, and the conditions that make its node unhealthy."""

    creation: float
    health: float | None
    """None: no limit."""
    drain: float
    in_place: float
    evict_retries: int
    node_conditions: tuple[str, ...]


def class_name(machine: Object) -> str:
    """The name of the Machine's class."""
    found = _mapping("spec.class", machine.spec.get("class"))
    kind, name = found.get("kind"), found.get("name")
    if kind != _CLASS:
        raise Malformed(f"spec.class.kind is {_shown(kind)}: set it to {_CLASS}")
    return _text("spec.class.name", name, _NAME, "the name of a MachineClass")


def class_name_or_none(machine: Object) -> str:
    """The name of the Machine's class; empty if the spec is invalid."""
    try:
        return class_name(machine)
    except Malformed:
        return ""


def plan(machine: Object, found: Object) -> MachinePlan:
    """The objects that the Machine's class `found` asks for; Malformed, with field and remedy, if invalid."""
    where = f"MachineClass {found.name}: "
    raw = found.raw
    if raw.get("provider") != _PROVIDER:
        raise Malformed(
            f"{where}provider is {_shown(raw.get('provider'))}: set it to {_PROVIDER}, or "
            "list its cloud in the setting clouds.types"
        )
    # The driver does not need the node template, but the cluster autoscaler cannot work without it.
    template = _mapping(f"{where}nodeTemplate", raw.get("nodeTemplate"))
    capacity = _mapping(f"{where}nodeTemplate.capacity", template.get("capacity"))
    for name in ("cpu", "gpu", "memory"):
        if name not in capacity:
            raise Malformed(f"{where}nodeTemplate.capacity has no {name}: say how much the node has")
    for name in ("instanceType", "region", "zone"):
        if not template.get(name):
            raise Malformed(f"{where}nodeTemplate.{name} is missing: fill it in")
    at = f"{where}providerSpec"
    spec = _mapping(at, raw.get("providerSpec"))  # unknown fields are ignored, as in Gardener's driver
    provider = ProviderSpec(
        image=_text(f"{at}.image", spec.get("image"), _IMAGE, "the image of the machine"),
        namespace=_optional(f"{at}.namespace", spec.get("namespace"), _NAMESPACE, "the name of a namespace"),
        ip_pool_v4=_optional(f"{at}.ipPoolNameV4", spec.get("ipPoolNameV4"), _NAME, "the name of an IPPool"),
        ip_pool_v6=_optional(f"{at}.ipPoolNameV6", spec.get("ipPoolNameV6"), _NAME, "the name of an IPPool"),
        zone=_optional(f"{at}.zone", spec.get("zone"), _ZONE, "the name of a zone"),
        resources=resources(f"{at}.resources", spec.get("resources")),
        volumes=_volumes(f"{at}.volumes", spec.get("volumes")),
    )
    return MachinePlan(
        home=machine.namespace,
        machine=machine.name,
        namespace=provider.namespace or machine.namespace,
        provider=provider,
        user_data=user_data(found),
        credentials=credentials(found),
        provider_id=names.pod(machine.name),
    )


def check_instance(where: str, one: Instance) -> None:
    """Raise Malformed unless the fields of a class of a cloud fit into labels and ids."""
    for field, value, form in (
        ("machine type", one.type, _ZONE),
        ("region", one.region, _ZONE),
        ("zone", one.zone, _OPTIONAL_ZONE),
        ("image", one.image, _IMAGE),
    ):
        _text(f"{where}: {field}", value, form, f"the {field} of the cloud")
    if max(len(one.reservations), len(one.sources)) > MOST:
        raise Malformed(f"{where} lists more than {MOST} reservations or images: remove some")


def pod_namespace(machine: Object, found: Object) -> str:
    """The namespace of the Machine's Pod."""
    at = f"MachineClass {found.name}: providerSpec"
    spec = _mapping(at, found.raw.get("providerSpec"))
    named = _optional(f"{at}.namespace", spec.get("namespace"), _NAMESPACE, "the name of a namespace")
    return named or machine.namespace


def user_data(found: Object) -> SecretName:
    """The Secret with the user data of machines of a class."""
    where = f"MachineClass {found.name}: secretRef"
    return _secret(where, found.raw.get("secretRef"), found.namespace)


def credentials(found: Object) -> SecretName:
    """The Secret with the kubeconfig of the provider cluster, or with credentials of the cloud."""
    where = f"MachineClass {found.name}: credentialsSecretRef"
    return _secret(where, found.raw.get("credentialsSecretRef"), found.namespace)


def secrets(found: Object) -> list[str]:
    """The names of the Secrets of its namespace that a MachineClass refers to."""
    refs = (found.raw.get("secretRef"), found.raw.get("credentialsSecretRef"))
    named = [ref for ref in refs if isinstance(ref, Mapping)]
    home = found.namespace
    there = [ref.get("name") for ref in named if (ref.get("namespace") or home) == home]
    return [str(name) for name in dict.fromkeys(there) if isinstance(name, str) and _NAME.fullmatch(name)]


def timeouts(machine: Object, settings: MachineSettings) -> Timeouts:
    """The Machine's own timeouts; the settings for fields that are missing or invalid.

    Invalid fields are no error: a Machine with a wrong timeout must still be deletable.
    """
    spec = machine.spec
    conditions = spec.get("nodeConditions")
    named = str(conditions).split(",") if isinstance(conditions, str) and conditions else None
    retries = spec.get("maxEvictRetries")
    return Timeouts(
        creation=_seconds(spec.get("creationTimeout"), settings.creation_timeout),
        health=None
        if spec.get("disableHealthTimeout") is True
        else _seconds(spec.get("healthTimeout"), settings.health_timeout),
        drain=_seconds(spec.get("drainTimeout"), settings.drain_timeout),
        in_place=_seconds(spec.get("inPlaceUpdateTimeout"), settings.in_place_timeout),
        evict_retries=retries if isinstance(retries, int) and retries > 0 else settings.evict_retries,
        node_conditions=tuple(name.strip() for name in named) if named else settings.node_conditions,
    )


def duration(value: Any) -> float | None:
    """The seconds of a duration such as `1h30m`, at most ten years; None if it is invalid."""
    found = durations.seconds(value) if isinstance(value, str) else None
    return None if found is None else min(found, _LONGEST)


def _seconds(value: Any, otherwise: float) -> float:
    found = duration(value)
    return otherwise if found is None else found


def _secret(field: str, raw: Any, home: str) -> SecretName:
    ref = _mapping(field, raw)
    name = _text(f"{field}.name", ref.get("name"), _NAME, "the name of a Secret")
    namespace = ref.get("namespace") or home
    if namespace != home:
        raise Malformed(
            f"{field}.namespace is {namespace!r:.80}: a class may name Secrets of its own namespace alone"
        )
    return SecretName(home, name)


def resources(field: str, raw: Any) -> Mapping[str, Mapping[str, str]] | None:
    if raw is None:
        return None
    given = _mapping(field, raw)
    found: dict[str, Mapping[str, str]] = {}
    for kind in ("requests", "limits"):
        if not given.get(kind):
            continue
        at = f"{field}.{kind}"
        amounts = _mapping(at, given[kind])
        if len(amounts) > MOST:
            raise Malformed(f"{at} has {len(amounts)} entries: {MOST} at most")
        for name in amounts:
            _text(f"{at} has a name that", name, _RESOURCE, "the name of a resource such as cpu")
        found[kind] = {
            name: _text(f"{at}.{name}", str(value), QUANTITY, "a quantity") for name, value in amounts.items()
        }
    return found


def _volumes(field: str, raw: Any) -> tuple[Volume, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > MOST:
        raise Malformed(f"{field} is {_shown(raw)}: give it a list of {MOST} volumes at most")
    found = []
    for number, one in enumerate(raw):
        at = f"{field}[{number}]"
        volume = _mapping(at, one)
        name = _text(f"{at}.name", volume.get("name"), _VOLUME, "a name of lower-case letters and digits")
        found.append(Volume(name, _text(f"{at}.size", volume.get("size"), QUANTITY, "a size such as 10Gi")))
    return tuple(found)


def _mapping(field: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Malformed(f"{field} is {_shown(value)}: give it an object with fields")
    return value


def _optional(field: str, value: Any, form: re.Pattern[str], remedy: str) -> str:
    return _text(field, value, form, remedy) if value not in (None, "") else ""


def _text(field: str, value: Any, form: re.Pattern[str], remedy: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Malformed(f"{field} is {_shown(value)}: give it {remedy}")
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
