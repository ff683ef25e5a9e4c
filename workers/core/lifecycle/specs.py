"""The spec of an object, taken as it came."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models.extensions import ExtensionSpec
from windowbox.models.objects import Object

Spec = TypeVar("Spec", bound=ExtensionSpec)


def parsed(model: type[Spec], object: Object) -> Spec:
    """The spec, or Malformed with the first field that is wrong; not with its value, which may be secret."""
    try:
        return model.model_validate(object.spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Malformed(f"spec.{where}: {first['msg']}; correct the field") from None
