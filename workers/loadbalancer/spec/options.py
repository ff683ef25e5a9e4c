"""Options of a Service: annotations, and the fields that mean the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from windowbox.models import addresses, durations
from windowbox.models.loadbalancers import Family, family
from windowbox.models.objects import Json, Object
from workers.loadbalancer.spec import fields

ADDRESS = "loadbalancer.windowbox/address"
SHARE = "loadbalancer.windowbox/share"
PROXY_PROTOCOL = "loadbalancer.windowbox/proxy-protocol"
IDLE_TIMEOUT = "loadbalancer.windowbox/idle-timeout"
CONNECTION_LIMIT = "loadbalancer.windowbox/connection-limit"
DRAIN = "loadbalancer.windowbox/drain"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"

MAX_SOURCE_RANGES = 1000
"""Source ranges of one Service. Each is a rule in each of its listeners, and Envoy reads them all."""
_LONGEST_RANGES = 64 * 1024
"""Characters of the annotation that lists them."""

_EVERYWHERE = ("0.0.0.0/0",)
"""The default of Kubernetes from before IPv6: all clients of both families."""

_LONGEST_TIMEOUT = 8760 * 3600.0
_WORD = re.compile(r"\S{1,63}")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Refusal:
    """A part of a Service that is not served."""

    reason: str
    """In CamelCase, for programs."""
    note: str
    """Field, value and remedy, for people."""
    port: tuple[int, str] | None = None
    """Number and protocol of the refused port; None: the refusal concerns the whole Service."""


@dataclass(frozen=True)
class Options:
    """The valid options."""

    allowed: tuple[str, ...] | None = None
    """Source ranges, of both families; None: all clients are served."""
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    """Seconds; None: the default."""
    max_connections: int | None = None
    requested: tuple[str, ...] = ()
    """The only addresses that it takes, at most one of each family."""
    share: str | None = None
    """Services of one cluster with the same word may share an address, if their ports differ."""
    drained: bool = False
    """No new connections for now; open ones go on."""
    range: str = ""
    """The name of the address range; empty: the usual one."""
    hostname: str = ""
    """The name in its status instead of addresses: see `clouds.frame.balancers.Balancer`."""
    translates: bool = False
    """Backends of the first family serve clients of both."""
    hairpin: tuple[Family, ...] = ()
    """The families of addresses over which a node that reaches itself gets no answer."""
    refusals: tuple[Refusal, ...] = ()
    fatal: bool = False
    """An invalid option forbids to serve anything."""


class _Invalid(Exception):
    def __init__(self, reason: str, note: str) -> None:
        super().__init__(note)
        self.refusal = Refusal(reason, note)


def options(service: Object, families: Collection[Family]) -> Options:
    """The options of a Service. Invalid ones become refusals."""
    found, spec, annotations = Options(), service.spec, service.annotations
    try:
        # An error in these refuses the whole Service: clients outside the source ranges would get in, servers
        # that read the client's address from a PROXY header would take one from the client, and nobody would
        # know an address that was not requested.
        found = replace(found, allowed=_allowed(spec, annotations))
        header = annotations.get(PROXY_PROTOCOL)
        if header not in (None, "v1", "v2"):
            raise _invalid("InvalidProxyProtocol", PROXY_PROTOCOL, header, "give v1 or v2, or remove it")
        found = replace(found, proxy_protocol=None if header is None else 1 if header == "v1" else 2)
        requested = _requested(spec, annotations, families)
        shared = annotations.get(SHARE)
        word = fields.text(shared).strip()
        if shared not in (None, "") and not _WORD.fullmatch(word):
            raise _invalid("InvalidShare", SHARE, shared, "give one word of at most 63 characters")
        found = replace(found, requested=requested, share=word or None)
    except _Invalid as error:
        return replace(found, refusals=(error.refusal,), fatal=True)
    return _with_defaults(found, annotations)


def _with_defaults(found: Options, annotations: Json) -> Options:
    """Add options whose default holds while their annotation is invalid: an error refuses nothing else."""
    refusals: list[Refusal] = []
    timeout, limit, drain = (annotations.get(one) for one in (IDLE_TIMEOUT, CONNECTION_LIMIT, DRAIN))
    if timeout is not None:
        seconds = durations.seconds(fields.text(timeout).strip(), least=1, most=_LONGEST_TIMEOUT)
        found = replace(found, idle_timeout=seconds)
        if seconds is None:
            remedy = "give a duration of 1s to 8760h, like 90s or 1h30m; until then the usual one holds"
            refusals.append(_invalid("InvalidIdleTimeout", IDLE_TIMEOUT, timeout, remedy).refusal)
    if limit is not None:
        written = fields.text(limit).strip()
        if _COUNT.fullmatch(written) and int(written):
            found = replace(found, max_connections=int(written))
        else:
            remedy = "give a number of 1 to 999999999; until then there is no limit"
            refusals.append(_invalid("InvalidConnectionLimit", CONNECTION_LIMIT, limit, remedy).refusal)
    if drain not in (None, "", "false", "true"):
        remedy = "give true or false, or remove it; until then clients are served"
        refusals.append(_invalid("InvalidDrain", DRAIN, drain, remedy).refusal)
    return replace(found, drained=drain == "true", refusals=tuple(refusals))


def _allowed(spec: Json, annotations: Json) -> tuple[str, ...] | None:
    field, given = "spec.loadBalancerSourceRanges", spec.get("loadBalancerSourceRanges")
    if given is None or given == []:
        field, given = f"annotation {SOURCE_RANGES}", annotations.get(SOURCE_RANGES)
        if given is None or (isinstance(given, str) and not given.strip()):
            return None
        if isinstance(given, str) and len(given) > _LONGEST_RANGES:
            raise _too_many_ranges(field, f"has {len(given)} characters")
        given = given.split(",") if isinstance(given, str) else given
    if not isinstance(given, list):
        raise _bad_ranges(field, [given])
    if len(given) > MAX_SOURCE_RANGES:
        raise _too_many_ranges(field, f"lists {len(given)} ranges")
    prefixes: dict[str, str | None] = {}
    for entry in given:
        text = fields.text(entry).strip()
        alone = addresses.address(text)
        prefix = addresses.prefix(text if alone is None else f"{text}/{alone.max_prefixlen}")
        prefixes[entry if isinstance(entry, str) else repr(entry)[:99]] = (
            None if prefix is None else str(prefix)
        )
    bad = [entry for entry, prefix in prefixes.items() if prefix is None]
    if bad:
        raise _bad_ranges(field, bad)
    good = tuple(dict.fromkeys(prefix for prefix in prefixes.values() if prefix is not None))
    return None if good == _EVERYWHERE else good


def _bad_ranges(field: str, bad: Iterable[object]) -> _Invalid:
    entries = fields.listed(fields.shown(entry) for entry in bad)
    note = (
        f"nothing is served, so that no client outside the ranges gets in: {field} holds {entries}; "
        "give prefixes like 10.0.0.0/8 or fd00::/8"
    )
    return _Invalid("InvalidSourceRanges", note)


def _too_many_ranges(field: str, size: str) -> _Invalid:
    note = (
        f"nothing is served: {field} {size}, and {MAX_SOURCE_RANGES} ranges are the most a Service may "
        "list; merge neighbouring ranges into larger ones"
    )
    return _Invalid("TooManySourceRanges", note)


def _requested(spec: Json, annotations: Json, families: Collection[Family]) -> tuple[str, ...]:
    """The annotation's addresses and the field's, IPv4 first."""
    found: dict[Family, str] = {}
    given, fallback = annotations.get(ADDRESS), spec.get("loadBalancerIP")
    entries: list[tuple[str, object]] = []
    if given not in (None, ""):
        parts = given.split(",", 8) if isinstance(given, str) else [given]
        entries += [(f"annotation {ADDRESS}", part) for part in parts]
    if fallback not in (None, ""):
        entries.append(("spec.loadBalancerIP", fallback))
    for field, entry in entries:
        address = fields.address(entry)
        if address is None:
            remedy = "give an address, or one of each family with a comma between them"
            raise _bad_address(field, entry, remedy)
        of = family(address)
        if of not in families:
            raise _bad_address(field, entry, f"the Service has no {of}; see spec.ipFamilies")
        if found.setdefault(of, address) != address:
            raise _bad_address(field, entry, f"{found[of]} is asked for, too; give one address of {of}")
    return tuple(found[one] for one in sorted(found))


def _bad_address(field: str, entry: object, remedy: str) -> _Invalid:
    return _Invalid("InvalidAddress", f"{field} asks for {fields.shown(entry)}: {remedy}")


def _invalid(reason: str, annotation: str, given: object, remedy: str) -> _Invalid:
    return _Invalid(reason, f"annotation {annotation} is {fields.shown(given)}: {remedy}")
