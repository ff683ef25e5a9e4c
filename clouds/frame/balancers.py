"""Load balancers of a cloud: what it makes of a Service, declared as a table of annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from windowbox.models import addresses
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Json, Object, mapping

INTERNAL_RANGE = "internal"
"""The name of the address range of internal load balancers."""

Change = Mapping[str, Any]
"""Fields of a `Balancer`, and their values."""


@dataclass(frozen=True)
class Balancer:
    """How a cloud serves a Service."""

    kind: str = ""
    """What the cloud calls it; empty if it has one kind only."""
    internal: bool = False
    """Only clients in the networks of nodes and Pods reach it."""
    families: tuple[Family, ...] | None = None
    """Of its addresses; None: those of the Service."""
    first_family_only: bool = False
    """Of the Service's families, it serves the first."""
    translates: bool = False
    """Backends of the Service's first family serve clients of both."""
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    """Seconds."""
    max_connections: int | None = None
    requested: tuple[str, ...] = ()
    """The only addresses that it takes."""
    keeps_source: bool = False
    """In the cloud, nodes see the client's address."""
    hairpin: tuple[Family, ...] = ()
    """The families of addresses over which a node that reaches itself gets no answer."""
    range: str = ""
    """The name of its address range; empty: the cluster's usual one."""
    clients: tuple[str, ...] | None = None
    """The networks of its clients; None: anywhere."""
    hostname: str = ""
    """The name in its status; `{id}` or `{number}` stands for its first address. Empty: addresses."""
    rejected: tuple[str, ...] = ()
    """Why it is not served: field, value, remedy."""


@dataclass(frozen=True)
class Values:
    """The values of an annotation."""

    words: str
    """For people."""
    read: Callable[[str], Change | None]
    """What a value changes; None if it is none of them."""


@dataclass(frozen=True)
class Annotation:
    """An annotation that a cloud reads."""

    name: str
    values: Values
    effect: str
    """What a client sees, for docs/clouds.md."""
    rule: str = ""
    """Of the contract."""


class ServiceClass(NamedTuple):
    """A value of `spec.loadBalancerClass` that a controller of the cloud serves."""

    change: Change
    effect: str
    """What a client sees, for docs/clouds.md."""


@dataclass(frozen=True)
class Balancers:
    """The load balancers of a cloud."""

    usual: Balancer
    """For a Service without annotations."""
    says: str
    """The same in words, for docs/clouds.md."""
    annotations: tuple[Annotation, ...] = ()
    """A later one decides over an earlier one."""
    ignored: tuple[str, ...] = ()
    """Annotations that are known, and change nothing here."""
    classes: Mapping[str, ServiceClass] = field(default_factory=dict)
    named: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda _: ()
    """The names of the load balancer classes in a ControlPlaneConfig, the default first."""
    admit: Callable[[Json, Json | None], Json] = lambda service, _: service
    """The Service as a webhook of the Shoot changes it; the second is the stored one."""
    finish: Callable[[Balancer, Object, CloudFacts], Balancer] = lambda found, *_: found
    """What follows from several annotations, or from the cluster."""


def balancer(of: Balancers, service: Object, facts: CloudFacts) -> Balancer:
    """How the cloud serves a Service of a cluster with these facts."""
    class_ = of.classes.get(str(service.spec.get("loadBalancerClass")))
    found, rejected = replace(of.usual, **(class_.change if class_ else {})), list[str]()
    for one in of.annotations:
        given = service.annotations.get(one.name)
        if given is None:
            continue
        change = one.values.read(given) if isinstance(given, str) else None
        if change is None:
            shown = given if len(str(given)) <= 64 else f"{str(given)[:64]}…"
            rejected.append(f'annotation {one.name} is "{shown}": {one.values.words}')
        else:
            found = replace(found, **change)
    found = of.finish(found, service, facts)
    if found.internal:
        # Without known networks, only its address tells it from a public one.
        found = replace(found, range=found.range or INTERNAL_RANGE, clients=facts.networks or None)
    return replace(found, rejected=(*rejected, *found.rejected)) if rejected else found


def annotated(service: Json, annotations: Mapping[str, str]) -> Json:
    """The Service with these annotations."""
    metadata = mapping(service.get("metadata"))
    return {
        **service,
        "metadata": {**metadata, "annotations": {**mapping(metadata.get("annotations")), **annotations}},
    }


def choice(values: Mapping[str, Change], *, ignore_case: bool = False) -> Values:
    """One of these values."""
    known = {key.lower(): change for key, change in values.items()} if ignore_case else values

    def read(given: str) -> Change | None:
        return known.get(given.strip().lower() if ignore_case else given.strip())

    return Values(f"give {' or '.join(key for key in values if key)}", read)


def flag(change: Change) -> Values:
    """`true`, which changes this, or `false`."""
    return choice({"true": change, "false": {}}, ignore_case=True)


def duration(unit: float, least: int, most: int) -> Values:
    """The idle timeout, as a whole number of a unit of so many seconds."""

    def read(given: str) -> Change | None:
        text = given.strip()
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
        return {"idle_timeout": number * unit} if least <= number <= most else None

    named = {60.0: "minutes", 1.0: "seconds", 0.001: "milliseconds"}[unit]
    return Values(f"give {least} to {most} {named}", read)


def one_address() -> Values:
    """An address that the load balancer has to get."""

    def read(given: str) -> Change | None:
        found = addresses.address(given.strip())
        return None if found is None else {"requested": (str(found),)}

    return Values("give an address", read)


def unsupported(remedy: str) -> Values:
    """No value is served."""
    return Values(remedy, lambda _: None)
