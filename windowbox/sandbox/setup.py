"""`python -m windowbox.sandbox.setup`: have every program here that the sandbox runs."""

from __future__ import annotations

import sys

from windowbox.errors import WindowboxError
from windowbox.sandbox import binaries, obtain, packages
from windowbox.sandbox.binaries import PROGRAMS, Found, Program
from windowbox.sandbox.nodes import site


def main() -> int:
    """Get what can be got. What cannot does not keep the rest from coming."""
    complaints = []
    wanted = _wanted()
    # One of each origin at a time, so that a missing package does not hide a missing compiler.
    for origin in dict.fromkeys(program.module for program in wanted):
        names = [program.name for program in wanted if program.module == origin]
        try:
            obtain.obtain(names, _say)
        except WindowboxError as error:
            complaints.append(str(error))
    if not site.unsuited():
        try:
            packages.install_for_nodes(_say)
        except WindowboxError as error:
            _say(f"Going on without real nodes: {error}")
    try:
        packages.install_docker(_say)
    except WindowboxError as error:
        _say(f"Going on without Docker: {error}")
    for name in (program.name for program in wanted):
        found = binaries.look(name)
        if isinstance(found, Found):
            _say(f"  {name:<24} {binaries.text(found.version):<8} {found.path}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _wanted() -> list[Program]:
    """All programs, but for those that would be of no use here."""
    reason = site.unsuited()
    left_out = [name for name in site.PROGRAMS if reason]
    if left_out:
        _say(f"Going on without real nodes, which need {reason}: {', '.join(left_out)} left out")
    return [program for program in PROGRAMS.values() if program.name not in left_out]


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
