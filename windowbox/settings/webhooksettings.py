"""Settings of `windowbox admit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from windowbox.models.webhooks import REGISTRATIONS
from windowbox.settings.section import Section

Mode = Literal["service", "url", "url-service"]
Webhook = Annotated[str, WithJsonSchema({"type": "string", "enum": [*REGISTRATIONS, "*"]})]


class PrometheusSettings(Section):
    """What the webhook `prometheus` writes into the Prometheus of the seed."""

    remote_write_urls: tuple[str, ...] = Field((), description="URLs that the seed's Prometheus writes to.")
    external_labels: dict[str, str] = Field({}, description="External labels of the seed's Prometheus.")

    def __hash__(self) -> int:
        return hash((self.remote_write_urls, tuple(sorted(self.external_labels.items()))))


class WebhookSettings(Section):
    """Webhooks: where they listen, how API servers reach them, and which of them there are."""

    address: str = Field("0.0.0.0:10250", description="host:port of the webhooks. Port 0: any free port.")
    mode: Mode = Field(
        "service",
        description="How API servers call webhooks: by Service, by URL, or by the Service's name in a URL.",
    )
    url: str = Field("", description="host or host:port of the URLs, in mode `url`.")
    service_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port of the Service. 0: the port of the server."
    )
    namespace: str = Field(
        "",
        description="Namespace of the Service and of the Secrets with certificates. Empty: certificates are "
        "generated at each start, and only one process may run.",
    )
    owner_namespace: str = Field(
        "", description="Namespace that owns the configurations. Empty: `namespace`."
    )
    runtime: bool = Field(False, description="Serve the garden's runtime cluster, under other names.")
    self_hosted: bool = Field(
        False, description="The cluster is a self-hosted Shoot: configure the Shoot's webhooks there, too."
    )
    dnsconfig: bool = Field(False, description="Serve `dnsconfig`, for Gardener before v1.138.")
    empty_secrets: bool = Field(
        False, description="Require empty Secrets of Shoots, for Gardener before v1.148."
    )
    disabled: tuple[Webhook, ...] = Field((), description="Webhooks to switch off; `*` for all.")
    second_calls: bool = Field(
        False,
        description="API servers repeat failed calls of mutating webhooks with policy Fail, so that the end "
        "of one of two processes fails no request. Gardener's extension lacks this.",
    )
    spread: float = Field(
        120.0, ge=0, description="Seconds between publishing a new authority and using its certificates."
    )
    garden_kubeconfig: Path | None = Field(
        None,
        description="For `admit --garden`: kubeconfig file of the garden. Unset: `garden.kubeconfig`, else "
        "`cluster.kubeconfig`, where the Secrets are.",
    )
    garden_lease: str = Field(
        "",
        description="For `admit --garden`: Lease in `namespace` whose holder writes certificates and "
        "configurations, without bus and journal. Empty: a lease on the bus.",
    )
    prometheus: PrometheusSettings = PrometheusSettings()

    @field_validator("disabled")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(names) - {*REGISTRATIONS, "*"}:
            raise ValueError(
                f"there is no webhook {', '.join(sorted(unknown))}; there are {', '.join(REGISTRATIONS)}"
            )
        return names

    @model_validator(mode="after")
    def _complete(self) -> WebhookSettings:
        if self.mode == "url" and not self.url:
            raise ValueError("mode url needs webhooks.url: the host by which API servers reach us")
        if self.garden_lease and not self.namespace:
            raise ValueError("webhooks.garden_lease is in webhooks.namespace: set both")
        return self
