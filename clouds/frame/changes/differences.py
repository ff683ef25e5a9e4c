"""The differences of two objects. Elements of lists are the same if they have the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A field on the way to a difference."""

    pattern: str
    """Its path, with `[]` for the elements of lists."""
    path: str
    """With the names of elements."""
    old: Any
    new: Any


Difference = tuple[Step, ...]
"""From the outermost field to the innermost that differs: a value, or an element that is new or gone."""


def differences(old: Any, new: Any) -> Iterator[Difference]:
    for name in dict.fromkeys([*new, *old]):
        yield from _compare((), Step(name, name, old.get(name), new.get(name)))


def _compare(before: Difference, step: Step) -> Iterator[Difference]:
    old, new = step.old, step.new
    if old == new or (not old and not new and {type(old), type(new)} <= {list, dict, type(None)}):
        return
    steps = (*before, step)
    if _are(Mapping, old, new):
        for name in dict.fromkeys([*(new or ()), *(old or ())]):
            end = f"[{name}]" if "." in str(name) else f".{name}"
            inner = Step(f"{step.pattern}.{name}", f"{step.path}{end}", _get(old, name), _get(new, name))
            yield from _compare(steps, inner)
    elif _are(list, old, new) and (names := _names(old, new)):
        by_name = [{one["name"]: one for one in each or ()} for each in (old, new)]
        for name in names:
            one, other = (each.get(name) for each in by_name)
            inner = Step(f"{step.pattern}[]", f"{step.path}[{name}]", one, other)
            if one is None or other is None:
                yield (*steps, inner)
            else:
                yield from _compare(steps, inner)
    else:
        yield steps


def _are(kind: type, old: Any, new: Any) -> bool:
    """Whether both are of a kind, of which one may be missing."""
    return all(one is None or isinstance(one, kind) for one in (old, new))


def _get(given: Mapping[str, Any] | None, name: str) -> Any:
    return given.get(name) if given else None


def _names(*lists: Sequence[Any] | None) -> list[Any]:
    """The names of all elements; empty if one has none, or two of a list have the same."""
    found: dict[Any, None] = {}
    for each in lists:
        names = [one.get("name") if isinstance(one, Mapping) else None for one in each or ()]
        if any(not isinstance(name, str | int) for name in names) or len(set(names)) < len(names):
            return []
        found |= dict.fromkeys(names)
    return list(found)
