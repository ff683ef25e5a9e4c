"""The files of the charts that are written from Python."""

from __future__ import annotations

from pathlib import Path

from tools.chart import admission, alerts, bus, dashboards, rights, schema
from tools.chart.admission import APPLICATION, RUNTIME, AdmissionValues

CHART = Path(__file__).parents[2] / "deploy" / "charts" / "windowbox"


def files() -> dict[str, str]:
    """The text of each, by its path in the chart."""
    return {
        "values.yaml": schema.values(),
        "values.schema.json": schema.schema(),
        "files/group.yaml": schema.group(),
        "files/bus.yaml": bus.text(),
        "files/rbac.yaml": rights.text(),
        "files/alerts.yaml": alerts.text(),
        "../../../docs/alerts.md": alerts.page(),
        **{
            f"../{chart}/{name}": text
            for chart, own in ((RUNTIME, admission.own_rights()), (APPLICATION, admission.garden_rights()))
            for name, text in (
                ("values.yaml", schema.values(AdmissionValues)),
                ("values.schema.json", schema.schema(AdmissionValues)),
                ("files/rbac.yaml", own),
            )
        },
        **{f"files/dashboards/{name}.json": dashboards.text(name) for name in dashboards.DASHBOARDS},
    }


def write() -> None:
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
