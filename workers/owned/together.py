"""Several things at once, with the outcome of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from windowbox.errors import Waiting


async def together(*acts: Awaitable[object]) -> None:
    """Do all of them, each to its end. What failed is raised; that something is waited for, only else."""
    results = await asyncio.gather(*acts, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Waiting)):
        raise error
