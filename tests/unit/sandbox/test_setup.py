"""The command line of `python -m sandbox.setup`."""

from __future__ import annotations

import pytest

from sandbox import setup
from tests.support.cases import cases


@cases("argument code", ("help", "--help", 0), ("unknown", "--downlaod", 2))
def test_help_and_mistakes_install_nothing(
    argument: str, code: int, empty_machine: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        setup.main([argument])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert "--download" in printed.out + printed.err
    assert "compiling" not in printed.out
