"""The bill of materials of the image, as CycloneDX, with the licences of all packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windowbox.errors import Refused

PERMITTED = frozenset(
    {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense"}
)
"""Licences of parts that may be distributed with a program under Apache-2.0."""

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


def document(
    version: str, time: int, programs: Mapping[str, str], files: Mapping[str, Path]
) -> dict[str, Any]:
    """Python packages with licences, programs with versions, and native files with hashes."""
    components: list[dict[str, Any]] = []
    for one in required():
        purl = f"pkg:pypi/{one.name.lower().replace('_', '-')}@{one.version}"
        components.append(
            {
                "type": "library", "bom-ref": purl, "name": one.name, "version": one.version, "purl": purl,
                "licenses": [{"expression": licence(one)}],
            }
        )  # fmt: skip
    components += [
        {"type": "application", "bom-ref": f"{name}@{number}", "name": name, "version": number}
        for name, number in sorted(programs.items())
    ]
    for name in sorted(files):
        digest = {"alg": "SHA-256", "content": hashlib.sha256(files[name].read_bytes()).hexdigest()}
        components.append({"type": "file", "bom-ref": f"file:{name}", "name": f"/{name}", "hashes": [digest]})
    own = {
        "type": "application", "bom-ref": "windowbox", "name": "windowbox", "version": version,
        "purl": f"pkg:pypi/windowbox@{version}", "licenses": [{"expression": "Apache-2.0"}],
    }  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'windowbox {version} {components}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": own,
        },
        "components": components,
        "dependencies": [{"ref": "windowbox", "dependsOn": [str(one["bom-ref"]) for one in components]}],
    }


def required(root: str = "windowbox", without: Collection[str] = ()) -> list[importlib.metadata.Distribution]:
    """All packages that `root` needs at run time, by name; not itself, nor `without` and what those need."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [root]
    while waiting:
        for requirement in importlib.metadata.distribution(waiting.pop()).requires or ():
            wanted, _, condition = requirement.partition(";")
            if "extra ==" in condition:
                continue
            name = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", wanted.strip())[0]).lower()
            if name not in (*found, root, *without):
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
    named = ["".join(metadata.get_all(name) or ()) for name in ("License-Expression", "License")]
    candidates: list[str] = [*named, " AND ".join(given)]
    for text in filter(None, candidates):
        expression = _SPELLED.get(text.strip(), text.strip())
        for spelled, known in _SPELLED.items():
            expression = expression.replace(spelled, known)
        names = {*_WORD.findall(expression)} - {"AND", "OR", "WITH"}
        if names and names <= PERMITTED:
            return expression
    raise Refused(f"{package.name}: licence {candidates[0] or candidates[1] or given!r} is not in the list")
