"""Capabilities: matches images to machines by what they need and offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from windowbox.models.gardener.cloudprofile import Capabilities, Capability, ImageVersion, MachineType

Known = Mapping[str, Sequence[str]]
"""Of each capability all values that count."""

_T = TypeVar("_T")
_ARCHITECTURE, _USUAL = "architecture", "amd64"


def defaulted(capabilities: Capabilities | None, definitions: Iterable[Capability]) -> Known:
    """All defined capabilities: of one that is not mentioned, every value."""
    given = capabilities or {}
    return {one.name: given.get(one.name) or one.values for one in definitions}


def of_machine(machine: MachineType, definitions: Sequence[Capability]) -> Known:
    """What a machine can do. Without definitions, an architecture is all that machines differ in."""
    if definitions:
        return defaulted(machine.capabilities, definitions)
    return {_ARCHITECTURE: (machine.architecture or _USUAL,)}


def of_version(version: ImageVersion, definitions: Sequence[Capability]) -> list[Known]:
    """What an image asks for; each of these will do."""
    if definitions:
        return [defaulted(flavor, definitions) for flavor in version.capability_flavors or [{}]]
    return [{_ARCHITECTURE: version.architectures or (_USUAL,)}]


def fit(one: Known, other: Known) -> bool:
    """Whether there is a value that suits both, for every capability."""
    return all(set(values) & set(other.get(name, ())) for name, values in one.items())


def best(flavors: Sequence[_T], known: Callable[[_T], Known], definitions: Iterable[Capability]) -> _T:
    """The flavor with the most preferred values; what is defined first weighs most."""
    left = list(flavors)
    for definition in definitions:
        for value in definition.values:
            left = [flavor for flavor in left if value in known(flavor)[definition.name]] or left
    return left[0]
