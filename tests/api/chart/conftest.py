from __future__ import annotations

import pytest

from tests.support import servers


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    servers.need("helm")
