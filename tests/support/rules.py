"""Rule ids of the contract in test ids, from which `docs/contract-coverage.md` is made."""

import pytest


def rule(*ids: str) -> pytest.MarkDecorator:
    """Name the rules that a test proves: `@rule("DN-5")` makes its id `test_…[DN-5]`."""
    return pytest.mark.parametrize((), [pytest.param(id="+".join(ids))])
