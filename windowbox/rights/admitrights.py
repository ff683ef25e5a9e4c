"""What the roles of `windowbox admit` may do in clusters."""

from __future__ import annotations

from windowbox.kinds import READ, WATCH
from windowbox.models.refs import (
    CLOUD_PROFILES,
    CLUSTERS,
    CONTROL_PLANES,
    LEASES,
    NAMESPACES,
    SECRETS,
    SERVICES,
)
from windowbox.rights import webhookconfigurations as configurations
from windowbox.rights.rights import Rights
from windowbox.settings.webhooksettings import WebhookSettings


def admit() -> Rights:
    """Write the configurations, and read what webhooks need."""
    names = [configurations.names(WebhookSettings(runtime=runtime)) for runtime in (False, True)]
    yield from _configurations(*names)
    yield CLUSTERS, "", READ
    yield CONTROL_PLANES, "", ("list",)  # they hand configurations over to Shoots
    yield SERVICES, "", READ  # that of the name server, for `dnsconfig`


def admission() -> Rights:
    """The same in a garden."""
    yield from _configurations(configurations.names(WebhookSettings(), garden=True))
    yield CLOUD_PROFILES, "", READ


def secrets() -> Rights:
    """Keep certificates, in the namespace of the webhooks."""
    yield SECRETS, "", (*READ, *WATCH, "create", "patch", "delete")


def leases() -> Rights:
    """Elect who writes the configurations, where there is no bus. RBAC cannot limit `create` to names."""
    yield LEASES._replace(named=configurations.GARDEN.prefixed), "", ("get", "create", "patch")


def _configurations(*names: configurations.Names) -> Rights:
    """The configurations of these names alone. RBAC cannot limit `create` to names."""
    for resource in configurations.RESOURCES.values():
        yield resource, "", ("create",)
        for name in names:
            yield resource._replace(named=name.prefixed), "", (*READ, *WATCH, "patch")
    yield NAMESPACES, "", READ
