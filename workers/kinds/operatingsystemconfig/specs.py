"""The spec of an OperatingSystemConfig, taken from the object as it came, and found sound."""

from __future__ import annotations

from itertools import islice

from windowbox.errors import Malformed
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.objects import Object
from workers.core.lifecycle import specs
from workers.kinds.operatingsystemconfig.validation import problems

_MAX_PROBLEMS = 5
"""So many problems are reported at once; the rest after these are corrected."""


def parsed(object: Object) -> OperatingSystemConfigSpec:
    """The spec. Malformed if anything is wrong with it: nothing has been made of it then."""
    spec = specs.parsed(OperatingSystemConfigSpec, object)
    if found := list(islice(problems(spec), _MAX_PROBLEMS)):
        raise Malformed("; ".join(found))
    return spec
