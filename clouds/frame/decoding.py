"""Decodes provider configs as Go decodes the types of an API group: strictly, and null is the zero value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from windowbox.errors import Malformed
from windowbox.models.gardener.cloudprofile import listed, require_small

_REMEMBERED = 8
"""Configs of CloudProfiles."""
_MOST_VALUES = 20_000
"""Values in one config. The largest of real CloudProfiles have some thousands."""


class Struct(BaseModel):
    """A part of a config. Null and missing are the same, as in Go."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        if given is None:
            return {}
        if isinstance(given, dict) and None in given.values():
            known = {field.alias for field in cls.model_fields.values()}
            # A field that is unknown is so with null too.
            return {name: value for name, value in given.items() if value is not None or name not in known}
        return given


class Config(Struct):
    """A config as a whole."""

    group: ClassVar[str]
    """`apiVersion` without the version."""

    api_version: str = ""
    kind: str = ""


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""An element of a list or of a map; null is empty."""
Switch = Annotated[bool, BeforeValidator(lambda value: bool(value) if value is None else value)]
"""An element of a map; null is false."""
Int32 = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Int64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]

_C = TypeVar("_C", bound=Config)
_S = TypeVar("_S", bound=BaseModel)


def decode(model: type[_C], given: object, what: str, *, kind_optional: bool = False) -> _C:
    """The config; Malformed if the group does not know it, or it has unknown fields or other types.

    Extensions that decode into a type (`kind_optional`) take its kind for a missing one. Without apiVersion
    they read the Go names of fields, which nobody writes: then there may be no fields.
    """
    require_small(given, what, _MOST_VALUES)
    head = given if isinstance(given, Mapping) else {"kind": ""}
    version, kind = f"{model.group}/v1alpha1", model.__name__
    found = {name: head.get(name) or "" for name in ("apiVersion", "kind")}
    if kind_optional and isinstance(given, Mapping):
        found["kind"] = found["kind"] or kind
        if not found["apiVersion"] and head.keys() <= {"apiVersion", "kind"}:
            found["apiVersion"] = version
    if found != {"apiVersion": version, "kind": kind}:
        raise Malformed(f"{what} has to be a {kind} of {version}: set its apiVersion and kind")
    return parse(model, given, what)


def decode_shared(model: type[_C], given: object, what: str, *, kind_optional: bool = False) -> _C:
    """The same for the config of a CloudProfile, which is decoded once for many Shoots.

    What was given is remembered by identity: it may not be changed afterwards.
    """
    found = _decoded(model, _Same(given), what, kind_optional)
    assert isinstance(found, model)
    return found


class _Same:
    """Equal to what holds the very same value."""

    def __init__(self, given: object) -> None:
        self.given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.given is self.given

    def __hash__(self) -> int:
        return id(self.given)


@lru_cache(_REMEMBERED)
def _decoded(model: type[Config], same: _Same, what: str, kind_optional: bool) -> Config:
    return decode(model, same.given, what, kind_optional=kind_optional)


def decode_leniently(model: type[_C], given: object, what: str) -> _C:
    """The same for stored objects: unknown fields are skipped."""
    require_small(given, what, _MOST_VALUES)
    return decode(model, _known(model, given), what)


def spelled(config: Config) -> dict[str, Any]:
    """The config as Go writes it: fields that are not set are left out, others also where they are empty."""
    return config.model_dump(by_alias=True, exclude_none=True)


def parse(model: type[_S], given: object, what: str) -> _S:
    """The value as this model. Malformed if it has other types."""
    try:
        return model.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as error:
        raise Malformed(f"{what}: {listed(error)}") from error


def _known(model: Any, given: object) -> object:
    """The value without fields that the model, or a model within it, does not have."""
    if not isinstance(given, dict):
        return given
    models = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return {name: _within(models[name], value) for name, value in given.items() if name in models}


def _within(annotation: Any, value: object) -> object:
    inner = [one for one in _types(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    if not inner:
        return value
    return [_known(inner[0], one) for one in value] if isinstance(value, list) else _known(inner[0], value)


def _types(annotation: Any) -> list[Any]:
    """The annotation and all types within it."""
    return [annotation, *(one for part in getattr(annotation, "__args__", ()) for one in _types(part))]
