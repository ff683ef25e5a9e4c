"""Collect garbage less often, which goes through thousands of tests each time: a plugin of pytest."""

from __future__ import annotations

import gc


def pytest_configure() -> None:
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was collected stays until the end
