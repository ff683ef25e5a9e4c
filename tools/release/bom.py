"""The bill of materials of the image, as CycloneDX."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.release import licences


def document(
    version: str, time: int, programs: Mapping[str, str], files: Mapping[str, Path]
) -> dict[str, Any]:
    """Python packages with licences, programs with versions, and native files with hashes."""
    components = [_package(one.name, one.version, licences.licence(one)) for one in licences.required()]
    components += [
        {"type": "application", "bom-ref": f"{name}@{number}", "name": name, "version": number}
        for name, number in sorted(programs.items())
    ]
    components += [_file(name, files[name]) for name in sorted(files)]
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


def _package(name: str, version: str, licence: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"expression": licence}],
    }


def _file(name: str, source: Path) -> dict[str, Any]:
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": f"/{name}",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
