"""`python -m tools.chart`: write the parts of the chart that come from Python."""

from __future__ import annotations

from tools.chart import generated

if __name__ == "__main__":
    generated.write()
