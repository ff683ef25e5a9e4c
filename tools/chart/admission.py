"""The values of the two charts of a garden's admission. gardener-operator gives both the same values."""

from __future__ import annotations

from pydantic import Field

from tools.chart.values import ChartSettings, Global, Image, Object, Role, VerticalPodAutoscalers

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
        {}, description="As in docs/settings.md, without `nats`, `metrics` and `probes`: no bus is used."
    )
    gardener: Object = Field({}, description="What gardener-operator injects.")
