"""Flags and environment of Gardener's own provider-local as settings, or the reason why a flag is refused.

windowbox replaces that program without changed arguments. All processes accept all of these flags; each uses
those that concern it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.kinds import POOLS

CONTROLLERS: dict[str, tuple[str, ...]] = {
    "backupbucket": ("backupbucket",),
    "backupentry": ("backupentry",),
    "bastion": ("bastion",),
    "controlplane": ("controlplane",),
    "dnsrecord": ("dnsrecord",),
    "healthcheck": (),
    "heartbeat": ("heartbeat",),
    "infrastructure": ("infrastructure",),
    "local-ext-seed": ("local-ext-seed",),
    "local-ext-shoot": ("local-ext-shoot",),
    "local-ext-shoot-after-worker": ("local-ext-shoot-after-worker",),
    "operatingsystemconfig": ("operatingsystemconfig",),
    "selfhostedshootexposure": ("exposure",),
    "worker": ("worker",),
}
"""The pools that replace each controller of the Go program. Conditions are part of each kind's runs."""

_OF_THE_CONTROLLERS = frozenset(pool for pools in CONTROLLERS.values() for pool in pools)


def _truth(given: str) -> bool:
    # As Go's strconv.ParseBool reads it.
    if given in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if given in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("it is true or false")


def _list(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]


def _labels(given: str) -> dict[str, str]:
    pairs = _list(given)
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(f"{wrong[0]!r} has no `=`: write name=value,name=value")
    return dict(pair.split("=", 1) for pair in pairs)


def _address(given: str) -> str:
    return f"0.0.0.0{given}" if given.startswith(":") else given


@dataclass(frozen=True)
class Flag:
    """A flag of the Go program. Without a setting it has no effect, or is refused with the remedy."""

    name: str
    setting: str = ""
    read: Callable[[str], Any] = str
    remedy: str = ""
    reason: str = ""
    """Why it has no effect, although Gardener's chart passes it."""

    @property
    def parameter(self) -> str:
        return f"go_{self.name.replace('-', '_')}"

    @property
    def may_stand_alone(self) -> bool:
        """Whether it needs no value."""
        return bool(self.remedy) or self.read is _truth


_HOST, _PORT = "webhook-config-server-host", "webhook-config-server-port"
_ONLY, _WITHOUT = "controllers", "disable-controllers"
_ONE_NUMBER = "the setting work.concurrency is for all kinds together"
_NO_ELECTION = (
    "each task has a lease of its own on the bus; the admission of a garden has a Lease of the API, which "
    "webhooks.garden_lease names, in webhooks.namespace"
)
_LIMITED = (
    "bastion", "controlplane", "dnsrecord", "extension", "healthcheck", "infrastructure",
    "operatingsystemconfig", "worker",
)  # fmt: skip

FLAGS = (
    Flag("extension-classes", "work.classes", _list),
    Flag("ignore-operation-annotation", "work.ignore_operation_annotation", _truth),
    Flag("heartbeat-namespace", "heartbeat.namespace"),
    Flag("heartbeat-renew-interval-seconds", "heartbeat.interval", int),
    Flag("backupbucket-local-dir", "backup.root"),
    Flag("backupbucket-container-mount-path", "backup.mount_path"),
    Flag("metrics-bind-address", "metrics", _address),
    Flag("health-bind-address", "probes", _address),
    Flag("gardener-version", "garden.version"),
    Flag("self-hosted-shoot-cluster", "webhooks.self_hosted", _truth),
    Flag("disable-webhooks", "webhooks.disabled", _list),
    Flag("webhook-config-mode", "webhooks.mode"),
    Flag("webhook-config-url", "webhooks.url"),
    Flag("webhook-config-service-port", "webhooks.service_port", int),
    Flag("webhook-config-namespace", "webhooks.namespace"),
    Flag("webhook-config-owner-namespace", "webhooks.owner_namespace"),
    Flag(_HOST, "webhooks.address"),
    Flag(_PORT, "webhooks.address"),
    Flag("prometheus-remote-write-url", "webhooks.prometheus.remote_write_urls", _list),
    Flag("prometheus-external-labels", "webhooks.prometheus.external_labels", _labels),
    Flag(_ONLY, "the pools of `windowbox work`", _list),
    Flag(_WITHOUT, "the pools of `windowbox work`", _list),
    Flag("master", remedy="give the server's URL in a kubeconfig, with --kubeconfig"),
    Flag("webhook-config-cert-dir", remedy="certificates are kept in Secrets and in memory: leave it out"),
    Flag("leader-election", remedy=_NO_ELECTION),
    *(
        Flag(f"leader-election-{part}", remedy=_NO_ELECTION)
        for part in (
            "id", "lease-duration", "renew-deadline", "retry-period", "resource-lock",
        )
    ),
    Flag("leader-election-namespace", reason=_NO_ELECTION),
    *(Flag(f"{kind}-max-concurrent-reconciles", reason=_ONE_NUMBER) for kind in _LIMITED),
)  # fmt: skip

_ENVIRONMENT = {
    "WEBHOOK_CONFIG_NAMESPACE": "webhooks.namespace",
    "GARDEN_KUBECONFIG": "garden.kubeconfig",
    "SEED_NAME": "garden.seed",
    "SHOOT_NAME": "garden.shoot",
    "SHOOT_NAMESPACE": "garden.shoot_namespace",
}
"""Variables that Gardener sets. IMAGEVECTOR_OVERWRITE is read with the image vector.

LEADER_ELECTION_NAMESPACE is not read: `webhooks.garden_lease` is in `webhooks.namespace`.
"""


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that these flags stand for. Malformed, with the remedy, if a flag is refused."""
    found: dict[str, Any] = {}
    values = _values(given)
    for flag, value in values.items():
        if flag.reason or flag.name in (_HOST, _PORT, _ONLY, _WITHOUT):
            continue
        _put(found, flag.setting, value)
    named = {flag.name: value for flag, value in values.items()}
    if _HOST in named or _PORT in named:
        host = named.get(_HOST) or "0.0.0.0"
        host = f"[{host}]" if ":" in host else host
        _put(found, "webhooks.address", f"{host}:{named.get(_PORT, '443')}")
    return found


def without_effect(given: Mapping[str, Any]) -> list[str]:
    """A line for each flag that has no effect here, with the reason."""
    return [f"--{flag.name} has no effect: {flag.reason}" for flag in _values(given) if flag.reason]


def pools(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The pools of the chosen controllers; none if no flag chooses controllers."""
    chosen = {
        flag.name: value for flag, value in _values(given).items() if value and flag.name in (_ONLY, _WITHOUT)
    }
    if not chosen:
        return ()
    names = [name for given in chosen.values() for name in given]
    if unknown := [name for name in names if name not in CONTROLLERS]:
        raise Malformed(f"no controller {unknown[0]!r}; there are: {', '.join(CONTROLLERS)}")
    only, without = chosen.get(_ONLY, list(CONTROLLERS)), chosen.get(_WITHOUT, [])
    kept = {pool for name in only if name not in without for pool in CONTROLLERS[name]}
    if _ONLY not in chosen:
        kept |= {*POOLS} - _OF_THE_CONTROLLERS  # pools that replace other programs of Gardener
    if not kept:
        raise Malformed("no controller is left that has work of its own: name more in --controllers")
    return tuple(pool for pool in POOLS if pool in kept)


def environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """The settings that Gardener's environment variables stand for."""
    found: dict[str, Any] = {}
    for name, setting in _ENVIRONMENT.items():
        if value := variables.get(name):
            _put(found, setting, value)
    return found


def _values(given: Mapping[str, Any]) -> dict[Flag, Any]:
    found = {}
    for flag in FLAGS:
        if not (texts := given.get(flag.parameter)):
            continue
        if flag.remedy:
            raise Malformed(f"--{flag.name} of Gardener's provider-local is not taken: {flag.remedy}")
        # As in Go: the last of repeated values wins, and repeated lists are joined.
        text = ",".join(texts) if flag.read in (_list, _labels) else texts[-1]
        try:
            found[flag] = flag.read(text)
        except ValueError as error:
            raise Malformed(f"--{flag.name} {text!r}: {error}") from error
    return found


def _put(found: dict[str, Any], setting: str, value: Any) -> None:
    *sections, name = setting.split(".")
    for section in sections:
        found = found.setdefault(section, {})
    found[name] = value
