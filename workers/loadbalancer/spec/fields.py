"""Fields of objects that may be missing or of a wrong type, read as one type."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from windowbox.models import addresses
from windowbox.models.objects import Json

_SHOWN = 64


def items(value: object) -> list[Any]:
    """The elements of a list; of anything else, none."""
    return list(value) if isinstance(value, list | tuple) else []


def mappings(value: object) -> list[Json]:
    return [item for item in items(value) if isinstance(item, Mapping)]


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def port_number(value: object) -> int | None:
    """A port number of 1 to 65535, or None."""
    # True is an int to Python.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536 else None


def address(value: object) -> str | None:
    """The canonical spelling of an address that packets can be sent to, or None."""
    found = addresses.address(text(value).strip())
    return None if found is None or found.is_unspecified or found.is_multicast else str(found)


def shown(value: object) -> str:
    """A value for a message: quoted, and cut if it is long."""
    # reprlib stops after a few elements and levels: a value may have thousands.
    written = value if isinstance(value, str) else reprlib.repr(value)[: 2 * _SHOWN]
    more = "…" if len(written) > _SHOWN else ""
    return f'"{written[:_SHOWN]}{more}"'


def listed(parts: Iterable[str], most: int = 3) -> str:
    """`a, b and c`; of a long list, the beginning and how many more."""
    found = list(parts)
    if len(found) > most:
        return f"{', '.join(found[:most])} and {len(found) - most} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)
