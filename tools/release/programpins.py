"""`python -m tools.release.programpins` pins official binaries in deploy/binaries/releases.json.

It takes the SHA-256 that the projects publish, and of images the digest of each platform's manifest: run it
where there is internet, and compare with a second place before you commit. Pins of a place that does not
answer stay.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import aiohttp

from sandbox.programs import downloads, imagelayers, releases
from sandbox.programs import web as pages
from sandbox.programs.binaries import PROGRAMS
from sandbox.programs.releases import Image
from windowbox.errors import WindowboxError


async def pinned() -> tuple[dict[str, Any], list[str]]:
    """The content of the file for the versions that are tested, and what could not be pinned."""
    content: dict[str, Any] = json.loads(releases.FILE.read_text())
    complaints = []
    async with pages.session() as web:
        for about in content.values():
            before = about["version"]
            about["version"] = PROGRAMS[next(iter(about["programs"]))].version
            for name, pins in about["programs"].items():
                for platform in pins:
                    try:
                        pins[platform] = await _sum(web, name, platform)
                    except WindowboxError as error:
                        pins[platform] = pins[platform] if about["version"] == before else None
                        complaints.append(f"{name} for {platform} is not pinned: {error}")
    return content, complaints


async def _sum(web: aiohttp.ClientSession, name: str, platform: str) -> str:
    found = releases.find(PROGRAMS[name], platform)
    assert found is not None
    if isinstance(found, Image):
        by_tag = replace(found, sha256=None)
        return (await imagelayers.Registry(web, by_tag).digest(platform)).removeprefix("sha256:")
    return await downloads.published_sum(web, found)


def main() -> int:
    content, complaints = asyncio.run(pinned())
    releases.FILE.write_text(f"{json.dumps(content, indent=2)}\n")
    print("\n".join(complaints), file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
