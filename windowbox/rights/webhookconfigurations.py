"""The configurations by which API servers call our webhooks. Pure."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.refs import Resource
from windowbox.models.webhooks import (
    CALICO_SELF_HOSTED_SHOOT,
    DNS_CONFIG,
    REGISTRATIONS,
    Registration,
    Target,
)
from windowbox.settings.webhooksettings import Mode, WebhookSettings

Manifest = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_KINDS = {False: "MutatingWebhookConfiguration", True: "ValidatingWebhookConfiguration"}
RESOURCES = {
    kind: Resource(_GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False) for kind in _KINDS.values()
}
LABELS = {"remediation.webhook.shoot.gardener.cloud/exclude": "true"}
"""Gardener does not relax webhooks with this label."""


@dataclass(frozen=True)
class Names:
    """The names of a component's objects in a cluster."""

    component: str

    @property
    def prefixed(self) -> str:
        """The name of its configuration, its Service and its ServiceAccount."""
        return f"gardener-extension-{self.component}"

    @property
    def domain(self) -> str:
        """The end of the names of its webhooks."""
        return f"{self.component.removeprefix('provider-')}.extensions.gardener.cloud"

    @property
    def identity(self) -> str:
        """The owner of the Secrets with its certificates."""
        return f"{self.prefixed}-webhook"

    @property
    def authority(self) -> str:
        return f"ca-{self.component}-webhook"

    @property
    def server(self) -> str:
        return f"{self.component}-webhook-server"


GARDEN = Names("admission-local")
COMPONENTS = (Names("provider-local"), Names("provider-local-runtime"), GARDEN)
"""All components that write configurations into their cluster or their garden."""


def names(settings: WebhookSettings, *, garden: bool = False) -> Names:
    if garden:
        return GARDEN
    return Names("provider-local-runtime" if settings.runtime else "provider-local")


def lease(settings: WebhookSettings, *, garden: bool) -> str:
    """The lease whose holder writes the configurations; one for each name of configurations."""
    if garden:
        return "admission"
    return "admit-runtime" if settings.runtime else "admit"


def served(settings: WebhookSettings, *targets: Target, clouds: Collection[str] = ()) -> list[Registration]:
    """The webhooks of these targets that are not disabled, in the order of configurations.

    Those of clouds are among them for these types only.
    """
    disabled = {*settings.disabled}
    if not settings.self_hosted:
        disabled.add(CALICO_SELF_HOSTED_SHOOT.name)
    if not settings.dnsconfig:
        disabled.add(DNS_CONFIG.name)
    if "*" in disabled:
        return []
    found = [
        one
        for one in REGISTRATIONS.values()
        if one.target in targets and one.name not in disabled and (not one.cloud or one.cloud in clouds)
    ]
    return sorted(found, key=lambda one: one.name)


def for_seed(
    settings: WebhookSettings, bundle: bytes, owner: Manifest | None = None, clouds: Collection[str] = ()
) -> list[Manifest]:
    """For the cluster that we run in, also for Shoots of these clouds. Deleted with the Namespace `owner`."""
    targets = (Target.SEED, Target.SHOOT) if settings.self_hosted else (Target.SEED,)
    known = names(settings)
    # A Shoot that hosts itself is of type local.
    wanted = [one for one in served(settings, *targets, clouds=clouds) if one.shoots != "clouds"]
    entries = _entries(settings, known, wanted, settings.mode, bundle)
    return _configurations(known.prefixed, entries, owner)


def for_shoot(
    settings: WebhookSettings, bundle: bytes, cloud: str = "", families: Collection[str] = ()
) -> list[Manifest]:
    """For a Shoot whose API server runs beside us: of this type, with addresses of these families."""
    known = names(settings)
    mode: Mode = "url" if settings.mode == "url" else "url-service"
    found = served(settings, Target.SHOOT, clouds=[cloud])
    which = ("all", "clouds" if cloud in CLOUD_TYPES else "local")
    wanted = [
        one for one in found if one.shoots in which and (not one.ip_family or one.ip_family in families)
    ]
    entries = _entries(settings, known, wanted, mode, bundle)
    return _configurations(f"{known.prefixed}-shoot", entries, None)


def for_garden(
    settings: WebhookSettings, bundle: bytes, owner: Manifest | None = None, clouds: Collection[str] = ()
) -> list[Manifest]:
    """For the garden whose admission we are, also that of these clouds."""
    known = names(settings, garden=True)
    wanted = served(settings, Target.GARDEN, clouds=clouds)
    entries = _entries(settings, known, wanted, settings.mode, bundle)
    return _configurations(known.prefixed, entries, owner)


def hosts(settings: WebhookSettings, known: Names) -> list[str]:
    """The names by which API servers reach us, for the certificate of the server."""
    if settings.mode == "url":
        # `host`, `host:port` or `[address]:port`
        url = settings.url
        if url.startswith("["):
            return [url[1:].partition("]")[0]]
        return [url.rpartition(":")[0] if url.count(":") == 1 else url]
    service = f"{known.prefixed}.{settings.namespace}"
    return [known.prefixed, service, f"{service}.svc"]


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def defaulted(configuration: Manifest) -> list[Manifest]:
    """The entries as the API shows them, with its defaults."""
    reinvocation = {"reinvocationPolicy": "Never"} if configuration["kind"] == _KINDS[False] else {}
    return [
        {"namespaceSelector": {}, "objectSelector": {}, **reinvocation, **entry}
        | {"rules": [{"scope": "*", **rule} for rule in entry["rules"]]}
        for entry in configuration["webhooks"]
    ]


def server_port(settings: WebhookSettings) -> int:
    return int(settings.address.rpartition(":")[2])


def _entries(
    settings: WebhookSettings, known: Names, wanted: Iterable[Registration], mode: Mode, bundle: bytes
) -> list[tuple[Registration, Manifest]]:
    made = []
    for one in wanted:
        entry = _entry(one, known, _client(settings, known, mode, one.url_path, bundle))
        if settings.second_calls and one.called_twice:
            # API servers reuse connections with the same authorities. The line break after the bundle keeps
            # the second call from a connection of the first, to a process that may be about to end.
            client = _client(settings, known, mode, one.second_path, bundle + b"\n" if bundle else b"")
            again = _entry(one, known, client) | {"name": f"{one.name}-again.{known.domain}"}
            conditions: Manifest = {}
            if one.matters:
                conditions = {"matchConditions": [{"name": "matters", "expression": one.matters}]}
            made += [(one, entry | conditions | {"failurePolicy": "Ignore"}), (one, again | conditions)]
        else:
            made.append((one, entry))
    return made


def _entry(registration: Registration, known: Names, client: Manifest) -> Manifest:
    entry: Manifest = {
        "name": f"{registration.name}.{known.domain}",
        "clientConfig": client,
        "rules": [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": [rule.group],
                "apiVersions": [rule.version],
                "resources": [rule.resource],
            }
            for rule in registration.rules
        ],
        "matchPolicy": "Exact",
        "failurePolicy": registration.policy,
        "sideEffects": "None",
        "timeoutSeconds": registration.timeout,
        "admissionReviewVersions": ["v1", "v1beta1"],
    }
    if registration.namespaces:
        entry["namespaceSelector"] = registration.namespaces
    if registration.objects:
        entry["objectSelector"] = registration.objects
    return entry


def _client(settings: WebhookSettings, known: Names, mode: Mode, path: str, bundle: bytes) -> Manifest:
    authority = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
    port = settings.service_port or server_port(settings)
    match mode:
        case "service":
            service = {"namespace": settings.namespace, "name": known.prefixed, "path": path, "port": port}
            return {"service": service, **authority}
        case "url":
            return {"url": f"https://{settings.url}{path}", **authority}
        case "url-service":
            return {"url": f"https://{known.prefixed}.{settings.namespace}:{port}{path}", **authority}


def _configurations(
    name: str, entries: list[tuple[Registration, Manifest]], owner: Manifest | None
) -> list[Manifest]:
    """One object for mutating webhooks and one for validating ones, if there are any."""
    made = []
    for validating, kind in _KINDS.items():
        found = [entry for one, entry in entries if one.validating is validating]
        if found:
            metadata: Manifest = {"name": name, "labels": LABELS}
            if owner is not None:
                reference = {key: owner["metadata"][key] for key in ("name", "uid")}
                metadata["ownerReferences"] = [
                    {
                        "apiVersion": "v1", "kind": "Namespace", **reference,
                        "controller": True, "blockOwnerDeletion": False,
                    }
                ]  # fmt: skip
            made.append({"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": metadata, "webhooks": found})
    return made
