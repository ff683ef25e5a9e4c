"""CloudProfiles: their providerConfig has a container image for each machine image."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from webhooks.review import Denied, Undecodable
from webhooks.shapes import part
from windowbox.errors import Malformed
from windowbox.models.fielderrors import required
from windowbox.models.gardener import cloudprofile, cloudprofilechecks
from windowbox.models.gardener.cloudprofile import CloudProfileConfig, CloudProfileSpec
from windowbox.models.objects import Json

_T = TypeVar("_T", bound=BaseModel)

_LARGEST = 100_000
"""Values in the spec of a profile."""


def errors(profile: Json) -> list[str]:
    spec = parsed(CloudProfileSpec, part(profile, "spec"), "spec")
    if spec.provider_config is None:
        detail = "providerConfig must be set for cloud profiles of provider local"
        return [required(cloudprofilechecks.CONFIG, detail)]
    return cloudprofilechecks.errors(decoded(spec.provider_config, cloudprofilechecks.CONFIG), spec)


def decoded(content: object, path: str) -> CloudProfileConfig:
    """A providerConfig. Unknown fields deny the request."""
    try:
        return cloudprofile.decoded(content, f"could not decode {path}")
    except Malformed as error:
        raise Denied(str(error)) from error


def parsed(model: type[_T], content: object, what: str) -> _T:
    """A part of an object as a model; Undecodable if it has other types."""
    try:
        cloudprofile.require_small(content, what, _LARGEST)
        return model.model_validate(content)
    except Malformed as error:
        raise Undecodable(str(error)) from error
    except ValidationError as error:
        raise Undecodable(f"{what}: {cloudprofile.listed(error)}") from error
