"""The parts of a webhook: its function, its review, and its denial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from windowbox.models.objects import Json, mapping
from windowbox.models.refs import Resource
from windowbox.models.webhooks import Registration
from windowbox.settings.webhooksettings import WebhookSettings

OLD_OBJECT = "the stored object (oldObject)"

WITH_YAML = 16 << 10
"""`Webhook.big` for webhooks that parse YAML, which takes long."""


class Denied(Exception):
    """The request is denied; users read the message."""


class Undecodable(Exception):
    """The object does not have the form of its kind: answered with code 400."""


class Wanted(Exception):
    """A webhook needs another object first: it is called again when that has been looked up."""

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(lookup.key)
        self.lookup = lookup


@contextmanager
def about(what: str) -> Iterator[None]:
    """Prefix denials with the object that they are about, where it is not the object under review."""
    try:
        yield
    except (Denied, Undecodable) as error:
        raise type(error)(f"{what}: {error}") from error


@dataclass(frozen=True)
class Review:
    """A request to create or update an object. Webhooks must not change the objects in place."""

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

    @property
    def key(self) -> str:
        return f"{self.resource.id}/{self.namespace}/{self.name}"


class Found(NamedTuple):
    """The object that a lookup found, or the reason why there is none."""

    object: Json | None
    failure: str = ""
    """In the words of the API server."""
    missing: bool = False
    """It does not exist. Otherwise, without an object, nobody knows."""


@dataclass(frozen=True)
class Context:
    """The facts that a webhook may read besides the review."""

    settings: WebhookSettings = field(default_factory=WebhookSettings)
    objects: Mapping[str, Found] = field(default_factory=dict)
    """What has been looked up, by the keys of lookups."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Container images by their name in the image vector."""
    driver: bool = True
    """Whether machine-controller-manager gets Gardener's driver for local machines."""

    def image(self, name: str) -> str:
        """The image of that name. Denied without one."""
        if name not in self.images:
            raise Denied(f"could not find image {name}: add it to the image vector")
        return self.images[name]

    def looked_up(self, lookup: Lookup, prefix: str = "") -> Json:
        """The object. Denied without one, with the prefix before the reason."""
        found = self._found(lookup)
        if found.object is None:
            raise Denied(f"{prefix}{found.failure}")
        return found.object

    def find(self, lookup: Lookup) -> Json | None:
        """The object, or None if it does not exist. Denied if it cannot be looked up."""
        return None if self._found(lookup).missing else self.looked_up(lookup)

    def _found(self, lookup: Lookup) -> Found:
        if lookup.key not in self.objects:
            raise Wanted(lookup)
        return self.objects[lookup.key]


@dataclass(frozen=True)
class Webhook:
    """The decision that belongs to a registration."""

    registration: Registration
    act: Callable[[Review, Context], Json | None]
    """The changed object, None to allow it unchanged, or Denied. It does not change its arguments.

    It asks its context for other objects. With the first that is not there it ends, and is called again."""
    skip_deleting: bool = True
    """Objects under deletion are allowed unchanged, without a call of `act`."""
    big: int = 64 << 10
    """Requests of this many bytes or more run in a thread, so that they do not block others."""
    reads_large: bool = False
    """What it looks up may be large: small requests run in a thread, too, but not in that of big ones."""
