"""What notebooks show of runs: charts and text, as HTML that stands alone."""

from collections.abc import Sequence
from html import escape

from td3.report.charts import learning_curves
from td3.report.records import RunRecords
from td3.report.render import named_runs

STYLE = (
    "--c0:#0072b2;--c1:#d55e00;--c2:#00805c;--c3:#b0578c;--c4:#8a6d00;--c5:#3f9bd0;--soft:#808690;--faint:#d5d8dc80;"
    "--paper-band:#b97700;max-width:560px"
)
"""Colors that can be read on light and dark pages."""
CHART = (
    "<style>.td3 svg{width:100%;height:auto}.td3 svg text{font:13px system-ui;fill:currentColor}"
    ".td3 svg .grid{stroke:var(--faint);fill:none}.td3 svg .axis{stroke:var(--soft);fill:none}"
    ".td3 svg .line{fill:none}</style>"
)


def figure_html(runs: Sequence[RunRecords], text: str) -> str:
    """Learning curves of each task, with text below."""
    named = named_runs(runs)
    charts = []
    for task in dict.fromkeys(records.config.env for records in runs):
        shown = [run for run in named if run.records.config.env == task and run.records.evaluated]
        if shown:
            figure = learning_curves(shown)
            dots = " ".join(
                f'<span style="color:{color}">\u25cf</span> {escape(name)}' for color, name in figure.legend
            )
            charts.append(f"<b>{escape(task)}</b><div>{dots}</div>{figure.small}")
    body = "".join(charts)
    return f'<div class="td3" style="{STYLE}">{CHART}{body}<pre style="white-space:pre-wrap">{escape(text)}</pre></div>'
