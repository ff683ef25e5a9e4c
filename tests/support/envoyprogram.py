"""Envoys that outlive the process that starts them, but not the tests."""

from __future__ import annotations

import shutil
from pathlib import Path

from workers.loadbalancer.launcher import programs


def envoy(folder: Path, name: str = "envoy") -> Path:
    """A wrapper of Envoy that ends with the tests even if these are killed."""
    setpriv = shutil.which("setpriv")
    program = folder / name
    before = f"{setpriv} --pdeathsig KILL " if setpriv else ""
    program.write_text(f'#!/bin/sh\nexec {before}"{programs.packaged()}" "$@"\n')
    program.chmod(0o700)
    return program
