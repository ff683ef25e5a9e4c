"""`python -m windowbox.chart`: write the parts of the chart that come from Python."""

from __future__ import annotations

from windowbox.chart import generated

if __name__ == "__main__":
    generated.write()
