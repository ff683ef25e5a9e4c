"""The table of clouds. A cloud is loaded when it is first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from windowbox.errors import Malformed
from windowbox.models.clouds import CLOUD_TYPES

if TYPE_CHECKING:
    from clouds.frame.balancers import Balancers
    from clouds.frame.changes.effects import Changes
    from clouds.frame.cloud import Cloud

TYPES = CLOUD_TYPES
"""The folders below, each with a `CLOUD`, and the modules `balancers` and `changes`."""
BALANCER_CLASSES = ("service.k8s.aws/nlb",)
"""The values of `spec.loadBalancerClass` that some cloud serves."""


def cloud(type_: str) -> Cloud:
    """The cloud of that type. Malformed if there is none."""
    if type_ not in TYPES:
        raise Malformed(f"there is no cloud {type_!r:.50}: known are {', '.join(TYPES)}")
    found: Cloud = import_module(f"clouds.{type_}").CLOUD
    return found


def balancers(type_: str) -> Balancers | None:
    """The load balancers of the cloud of that type; None if there is no such cloud."""
    if type_ not in TYPES:
        return None
    found: Balancers = import_module(f"clouds.{type_}.balancers").BALANCERS
    return found


def changes(type_: str) -> Changes:
    """What the cloud of that type declares about updates."""
    found: Changes = import_module(f"clouds.{cloud(type_).type}.changes").CHANGES
    return found
