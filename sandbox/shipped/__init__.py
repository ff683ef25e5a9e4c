"""Files that commands need and wheels contain. In a checkout, links to folders at the top."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

CRDS = _HERE / "crds"
"""The CustomResourceDefinitions of windowbox's kinds."""
MODULES = _HERE / "binaries"
"""The Go modules that programs of the sandbox are compiled from."""
EXAMPLES = _HERE / "examples"
"""The objects of the demo."""
MACHINE = _HERE / "machine"
"""Programs and configuration of the machine image of the sandbox."""
