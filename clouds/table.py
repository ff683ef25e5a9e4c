"""The table of clouds. A cloud is loaded when it is first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from clouds.frame.cloud import Cloud
from windowbox.errors import Malformed

if TYPE_CHECKING:
    from clouds.frame.changes.effects import Changes
from windowbox.settings.cloudsettings import CLOUD_TYPES

TYPES = CLOUD_TYPES
"""The folders below, each with a `CLOUD`."""


def cloud(type_: str) -> Cloud:
    """The cloud of that type. Malformed if there is none."""
    if type_ not in TYPES:
        raise Malformed(f"there is no cloud {type_!r:.50}: known are {', '.join(TYPES)}")
    found: Cloud = import_module(f"clouds.{type_}").CLOUD
    return found


def changes(type_: str) -> Changes:
    """What the cloud of that type declares about updates."""
    found: Changes = import_module(f"clouds.{cloud(type_).type}.changes").CHANGES
    return found
