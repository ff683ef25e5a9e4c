"""Runs `ip` and other programs that change the network of this host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from windowbox.errors import Refused

_PATIENCE = 30


def apply(commands: Sequence[str], namespace: str | None = None, *, family: str = "") -> None:
    """Run these `ip` commands in order, as one batch; in a network namespace, if one is named."""
    where = [*([family] if family else []), *(["-n", namespace] if namespace else [])]
    run("ip", *where, "-batch", "-", stdin="\n".join(commands) + "\n")


def asked(*arguments: str) -> list[dict[str, Any]]:
    """The output of `ip`."""
    found: list[dict[str, Any]] = json.loads(run("ip", "-json", *arguments) or "[]")
    return found


def links() -> set[str]:
    return {link["ifname"] for link in asked("link", "show")}


def run(*argv: str, stdin: str = "") -> str:
    """The output of a program. Refused if it ends with an error."""
    try:
        answer = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except FileNotFoundError as error:
        raise Refused(f"there is no program {argv[0]!r} on this host") from error
    if answer.returncode:
        raise Refused(f"{' '.join(argv)}: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout
