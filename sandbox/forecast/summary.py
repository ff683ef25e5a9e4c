"""In a few lines: what the demo will show, what not and why, and the time that it will take."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.forecast import showing, timing
from sandbox.forecast.facts import Facts


def lines(facts: Facts) -> list[str]:
    """Six lines at most."""
    parts = showing.parts(facts)
    shown = [part for part in parts if not part.lacking]
    if not shown:
        return [f"Nothing can be shown here: needed is {showing.impossible(facts)}"]
    found = [f"Shown: {listed([part.title for part in shown])}."]
    reasons = dict.fromkeys(part.lacking for part in parts if part.lacking)
    for reason in reasons:
        titles = [part.title for part in parts if part.lacking == reason]
        found.append(f"Left out: {listed(titles)}, because {reason}")
    time = timing.expected(facts, nodes=not showing.without_nodes(facts))
    records, everything = timing.text(time.records), timing.text(time.everything)
    found.append(f"Expected: records after {records}, all after {everything}; {time.how}.")
    return found


def code(facts: Facts) -> int:
    """For the shell: 0 if all is shown, 1 if some is left out, 3 if nothing can be shown."""
    parts = showing.parts(facts)
    if all(part.lacking for part in parts):
        return 3
    return 1 if any(part.lacking for part in parts) else 0


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
