"""A request of an API server, and what else a webhook needs to answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windowbox.models.objects import Json, mapping
from windowbox.models.refs import Resource
from windowbox.settings.webhooksettings import WebhookSettings


class Denied(Exception):
    """The request is denied; the message is what the user reads."""


class Undecodable(Exception):
    """The object is not what its kind says: answered with code 400."""


OLD_OBJECT = "the stored object (oldObject)"


@contextmanager
def about(what: str) -> Iterator[None]:
    """Name in denials the object that they are about, if it is another one than that under review."""
    try:
        yield
    except (Denied, Undecodable) as error:
        raise type(error)(f"{what}: {error}") from error


@dataclass(frozen=True)
class Review:
    """A request to create or update an object. Nobody may change the objects: make new ones."""

    uid: str
    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    namespace: str
    name: str
    operation: str
    object: Json
    old_object: Json | None = None
    dry_run: bool = False

    @property
    def deleting(self) -> bool:
        """Whether the object is under deletion."""
        return bool(mapping(self.object.get("metadata")).get("deletionTimestamp"))


class Lookup(NamedTuple):
    """An object that a webhook needs besides the one under review."""

    resource: Resource
    namespace: str
    name: str


class Found(NamedTuple):
    """What a lookup has found, or why nothing."""

    object: Json | None
    failure: str = ""
    """In the words of the API server."""


@dataclass(frozen=True)
class Context:
    """What a webhook may know besides the review."""

    settings: WebhookSettings = field(default_factory=WebhookSettings)
    found: Mapping[str, Any] | None = None
    """The object that it looks up."""
    failure: str = ""
    """Why there is no such object, in the words of the API server."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Container images by their name in the image vector."""

    def image(self, name: str) -> str:
        """The image of that name. Without one the request is denied."""
        if name not in self.images:
            raise Denied(f"could not find image {name}: add it to the image vector")
        return self.images[name]

    def looked_up(self, prefix: str = "") -> Mapping[str, Any]:
        """The object that was looked up. Without it the request is denied, with this before the reason."""
        if self.found is None:
            raise Denied(f"{prefix}{self.failure}")
        return self.found
