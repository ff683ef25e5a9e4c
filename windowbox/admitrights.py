"""What the roles of `windowbox admit` may do in clusters."""

from __future__ import annotations

from windowbox import webhookconfigurations
from windowbox.kinds import READ, WATCH
from windowbox.models.refs import CLOUD_PROFILES, CLUSTERS, CONTROL_PLANES, NAMESPACES, SECRETS, SERVICES
from windowbox.rights import Rights


def admit() -> Rights:
    """Write the configurations, and read what webhooks need."""
    yield from _configurations()
    yield CLUSTERS, "", READ
    yield CONTROL_PLANES, "", ("list",)  # they hand configurations over to Shoots
    yield SERVICES, "", READ  # that of the name server, for `dnsconfig`


def admission() -> Rights:
    """The same in a garden."""
    yield from _configurations()
    yield CLOUD_PROFILES, "", READ


def secrets() -> Rights:
    """Keep certificates, in the namespace of the webhooks."""
    yield SECRETS, "", (*READ, *WATCH, "create", "patch", "delete")


def _configurations() -> Rights:
    for resource in webhookconfigurations.RESOURCES.values():
        yield resource, "", (*READ, *WATCH, "create", "patch")
    yield NAMESPACES, "", READ
