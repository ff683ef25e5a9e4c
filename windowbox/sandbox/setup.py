"""`python -m windowbox.sandbox.setup`: have every program here that the sandbox runs."""

from __future__ import annotations

import sys

from windowbox.errors import WindowboxError
from windowbox.sandbox import binaries, obtain, packages
from windowbox.sandbox.binaries import PROGRAMS, Found


def main() -> int:
    """Get what can be got. What cannot does not keep the rest from coming."""
    complaints = []
    # One of each origin at a time, so that a missing package does not hide a missing compiler.
    for origin in dict.fromkeys(program.module for program in PROGRAMS.values()):
        names = [program.name for program in PROGRAMS.values() if program.module == origin]
        try:
            obtain.obtain(names, _say)
        except WindowboxError as error:
            complaints.append(str(error))
    try:
        packages.install_docker(_say)
    except WindowboxError as error:
        _say(f"Going on without Docker: {error}")
    for name in PROGRAMS:
        found = binaries.look(name)
        if isinstance(found, Found):
            _say(f"  {name:<24} {binaries.text(found.version):<8} {found.path}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
