"""Options of a Service: annotations, and the fields that mean the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

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
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    max_connections: int | None = None
    requested: tuple[str, ...] = ()
    share: str | None = None
    drained: bool = False
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
        found = replace(found, proxy_protocol=_proxy_protocol(annotations))
        found = replace(found, requested=_requested(spec, annotations, families), share=_share(annotations))
    except _Invalid as error:
        return replace(found, refusals=(error.refusal,), fatal=True)
    for field, read in _WITH_DEFAULT.items():
        try:
            found = replace(found, **{field: read(annotations)})
        except _Invalid as error:
            found = replace(found, refusals=(*found.refusals, error.refusal))
    return found


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
        f"nothing is served, so that nobody gets in who should not: {field} holds {entries}; "
        "give prefixes like 10.0.0.0/8 or fd00::/8"
    )
    return _Invalid("InvalidSourceRanges", note)


def _too_many_ranges(field: str, size: str) -> _Invalid:
    note = (
        f"nothing is served: {field} {size}, and {MAX_SOURCE_RANGES} ranges are the most a Service may "
        "list; merge neighbouring ranges into larger ones"
    )
    return _Invalid("TooManySourceRanges", note)


def _proxy_protocol(annotations: Json) -> Literal[1, 2] | None:
    match given := annotations.get(PROXY_PROTOCOL):
        case None:
            return None
        case "v1":
            return 1
        case "v2":
            return 2
    raise _Invalid("InvalidProxyProtocol", _note(PROXY_PROTOCOL, given, "give v1 or v2, or remove it"))


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


def _share(annotations: Json) -> str | None:
    given = annotations.get(SHARE)
    word = fields.text(given).strip()
    if given is None or given == "":
        return None
    if not _WORD.fullmatch(word):
        raise _Invalid("InvalidShare", _note(SHARE, given, "give one word of at most 63 characters"))
    return word


def _idle_timeout(annotations: Json) -> float | None:
    given = annotations.get(IDLE_TIMEOUT)
    if given is None:
        return None
    seconds = durations.seconds(fields.text(given).strip(), least=1, most=_LONGEST_TIMEOUT)
    if seconds is None:
        remedy = "give a duration of 1s to 8760h, like 90s or 1h30m; until then the usual one holds"
        raise _Invalid("InvalidIdleTimeout", _note(IDLE_TIMEOUT, given, remedy))
    return seconds


def _max_connections(annotations: Json) -> int | None:
    given = annotations.get(CONNECTION_LIMIT)
    if given is None:
        return None
    written = fields.text(given).strip()
    if not _COUNT.fullmatch(written) or int(written) == 0:
        remedy = "give a number of 1 to 999999999; until then there is no limit"
        raise _Invalid("InvalidConnectionLimit", _note(CONNECTION_LIMIT, given, remedy))
    return int(written)


def _drained(annotations: Json) -> bool:
    match given := annotations.get(DRAIN):
        case None | "" | "false":
            return False
        case "true":
            return True
    remedy = "give true or false, or remove it; until then clients are served"
    raise _Invalid("InvalidDrain", _note(DRAIN, given, remedy))


def _note(annotation: str, given: object, remedy: str) -> str:
    return f"annotation {annotation} is {fields.shown(given)}: {remedy}"


_WITH_DEFAULT: dict[str, Callable[[Json], Any]] = {
    "idle_timeout": _idle_timeout,
    "max_connections": _max_connections,
    "drained": _drained,
}
"""Options whose default holds while their annotation is invalid: an error refuses nothing else."""
