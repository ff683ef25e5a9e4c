"""The values and rights of the charts of a garden's admission, as gardener-operator installs them.

Both charts get the same values.
"""

from __future__ import annotations

import yaml
from pydantic import Field

from tools.chart.values import ChartSettings, Global, Image, Object, Role, VerticalPodAutoscalers
from windowbox.rights import rbac

RUNTIME = "windowbox-admission-runtime"
APPLICATION = "windowbox-admission-application"


class AdmissionValues(Role):
    """All values of these charts."""

    global_: Global = Field(Global(), alias="global")
    image: Image = Image(repository="windowbox")
    image_pull_secrets: list[str] = Field([])
    replicas: int = Field(2, ge=0)
    port: int = Field(10250, ge=1, le=65535)
    vpa: VerticalPodAutoscalers = VerticalPodAutoscalers()
    settings: ChartSettings = Field(
        {},
        description="As in docs/settings.md, without `nats`, `metrics` and `probes`: no bus is used.",
    )
    gardener: Object = Field({}, description="What gardener-operator injects.")


def own_rights() -> str:
    """In the namespace of the Deployment."""
    return _text(rbac.OWN_SECRET_RULES["admission"])


def garden_rights() -> str:
    return _text(rbac.RULES["admission"])


def _text(found: list[Object]) -> str:
    head = "# Written by `make generate` from windowbox/rights/rbac.py.\n"
    return head + yaml.safe_dump({"rules": found})
