"""Components of the Models tab."""

import html
from collections.abc import Iterator
from typing import Any

import gradio as gr

from doap.app.models.catalogue import list_entries, list_figures
from doap.app.models.speed import measure_speeds
from doap.app.models.views import Speeds, make_table, render_card, render_charts
from doap.app.reporting import reports_errors
from doap.app.settings import WORK, AppSettings
from doap.app.work import run_in_steps
from doap.networks import DEFAULT_MODEL

INTRODUCTION = (
    "The models that ship with doap, as their cards describe them. Point at a mark, or reach it with the Tab key, to "
    "read its values. Click a column of the table to sort by it."
)


def build_tab(settings: AppSettings) -> None:
    """Build the tab in the current Gradio context."""
    figures, names = list_figures(), [entry.name for entry in list_entries()]
    speeds: Speeds = {}  # of this machine, the same for all visitors

    @reports_errors
    def measure(figure: str) -> Iterator[tuple[Any, ...]]:
        steps = run_in_steps(lambda progress: measure_speeds(settings.device, progress))
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                speeds.update(end.value)
                break
            bar = f'<progress max="{step.total or 1}" value="{step.done}"></progress>'
            text = f'<div class="doap-status" role="status">{bar}<span>{html.escape(step.name)}</span></div>'
            yield text, gr.skip(), gr.skip()
        yield '<div class="doap-status" role="status">Done.</div>', render_charts(figure, speeds), make_table(speeds)

    @reports_errors
    def show_card(name: str) -> str:
        return render_card(name)

    gr.Markdown(INTRODUCTION)
    with gr.Row():
        figure = gr.Dropdown(
            figures, value=figures[0] if figures else None, label="Metric", scale=4, elem_id="models-metric"
        )
        with gr.Column(scale=1, min_width=200):
            start = gr.Button("Measure speed", variant="primary", elem_id="models-measure")
            cancel = gr.Button("Cancel", elem_id="models-cancel")
    status = gr.HTML(elem_id="models-status")
    charts = gr.HTML(render_charts(figures[0], speeds) if figures else "", elem_id="models-charts")
    table = gr.Dataframe(make_table(speeds), interactive=False, label="All models", elem_id="models-table")
    default = DEFAULT_MODEL if DEFAULT_MODEL in names else names[0]
    card_name = gr.Dropdown(names, value=default, label="Card", elem_id="models-card-name")
    card = gr.HTML(render_card(default), elem_id="models-card")

    run = start.click(
        measure,
        figure,
        [status, charts, table],
        concurrency_id=WORK,
        concurrency_limit=1,
        show_progress="minimal",
        show_progress_on=status,
        api_visibility="private",
    )
    cancel.click(lambda: "Cancelled.", None, status, cancels=[run], queue=False, api_visibility="private")
    figure.input(
        lambda name: render_charts(name, speeds), figure, charts, show_progress="hidden", api_visibility="private"
    )
    card_name.input(show_card, card_name, card, show_progress="hidden", api_visibility="private")
