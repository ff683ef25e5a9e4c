"""One AdmissionReview of each kind, with the looked-up object and the expected answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.reviews import admission_review
from webhooks.review import Context, Found, Webhook
from webhooks.table import WEBHOOKS
from windowbox.models.objects import Json
from windowbox.settings.webhooksettings import WebhookSettings

_FOLDER = Path(__file__).parent / "admissionreviews"

DRIVER = "machine-controller-manager-provider-local"
IMAGES = {DRIVER: f"registry.local.gardener.cloud:5001/{DRIVER}:v1.150.0-dev"}


@dataclass(frozen=True)
class Example:
    """A file of the folder `admissionreviews`."""

    name: str
    fields: Mapping[str, Any]

    @property
    def object(self) -> Json:
        return self.fields["object"]  # type: ignore[no-any-return]

    @property
    def patch(self) -> list[dict[str, Any]]:
        """A patch to the expected object; the webhook's patch may differ from it."""
        return self.fields["patch"]  # type: ignore[no-any-return]

    @property
    def denied(self) -> str:
        """The message of the denial; empty if the request is allowed."""
        return str(self.fields.get("message", ""))

    @property
    def webhook(self) -> Webhook:
        path = self.fields["path"]
        return next(one for one in WEBHOOKS.values() if one.registration.url_path == path)

    @property
    def context(self) -> Context:
        settings = WebhookSettings(**self.fields.get("settings", {}))
        return Context(settings, images=IMAGES)

    @property
    def found(self) -> Found:
        """What a lookup finds."""
        return Found(self.fields.get("found"), self.fields.get("failure", ""))

    def review(self) -> dict[str, Any]:
        """The AdmissionReview as the API server sends it."""
        more = {"oldObject": self.fields.get("old_object")}
        if subresource := self.fields.get("subresource"):
            more["subResource"] = subresource
        operation = self.fields["operation"]
        return admission_review(self.object, self.fields["resource"], operation=operation, **more)


@cache
def examples() -> tuple[Example, ...]:
    files = sorted(_FOLDER.glob("*.yaml"), key=lambda file: int(file.stem.partition("-")[2]))
    return tuple(Example(file.stem, yaml.safe_load(file.read_text())) for file in files)
