"""The bill of materials of the image, as CycloneDX."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from windowbox.release import licences


def document(version: str, time: int, programs: Mapping[str, str]) -> dict[str, Any]:
    """All Python packages with their licences, and programs with their versions."""
    components = [_package(one.name, one.version, licences.licence(one)) for one in licences.required()]
    components += [
        {"type": "application", "bom-ref": f"{name}@{number}", "name": name, "version": number}
        for name, number in sorted(programs.items())
    ]
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
