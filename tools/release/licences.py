"""Licences of what windowbox depends on: named, and compatible with its own."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

from windowbox.errors import Refused

PERMITTED = frozenset(
    {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense"}
)
"""Of which a part may be distributed with a program under Apache-2.0."""

_SPELLED = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_WORD = re.compile(r"[\w.+-]+")


def required(root: str = "windowbox") -> list[importlib.metadata.Distribution]:
    """All packages that it needs when it runs, without itself, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [root]
    while waiting:
        for name in _requirements(waiting.pop()):
            if name not in found and name != root:
                try:
                    found[name] = importlib.metadata.distribution(name)
                except importlib.metadata.PackageNotFoundError:
                    continue  # for other systems, or other versions of Python
                waiting.append(name)
    return [found[name] for name in sorted(found)]


def licence(package: importlib.metadata.Distribution) -> str:
    """The SPDX expression of a package's licence; Refused if it names none that is permitted."""
    metadata = package.metadata
    given: list[str] = [
        str(one).rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or () if "License ::" in one
    ]
    told = ["".join(metadata.get_all(name) or ()) for name in ("License-Expression", "License")]
    candidates: list[str] = [*told, " AND ".join(given)]
    for text in filter(None, candidates):
        expression = _SPELLED.get(text.strip(), text.strip())
        for spelled, known in _SPELLED.items():
            expression = expression.replace(spelled, known)
        if _permitted(expression):
            return expression
    raise Refused(f"{package.name}: licence {candidates[0] or candidates[1] or given!r} is not in the list")


def _permitted(expression: str) -> bool:
    names = {word for word in _WORD.findall(expression) if word not in ("AND", "OR", "WITH")}
    return bool(names) and names <= PERMITTED


def _requirements(name: str) -> Iterator[str]:
    for requirement in importlib.metadata.distribution(name).requires or ():
        wanted, _, condition = requirement.partition(";")
        if "extra ==" not in condition:
            yield re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", wanted.strip())[0]).lower()
