"""Components of the Match tab."""

from typing import Any

import gradio as gr
from gradio.context import Context

from doap.app.match.downloads import FORMATS
from doap.app.match.events import MatchEvents
from doap.app.match.examples import list_examples
from doap.app.match.session import open_store
from doap.app.methods import MAX_METHODS, default_methods, label_method, list_methods
from doap.app.settings import WORK, AppSettings
from doap.app.uploads import UploadedImage

VIEWS = [("Keypoints", "keypoints"), ("Mutual", "mutual"), ("Verified", "verified"), ("Overlay", "overlay")]
GEOMETRIES = [("Fundamental", "fundamental"), ("Homography", "homography")]
COPY = "(text) => { navigator.clipboard?.writeText(text); return text; }"  # browsers have it on 127.0.0.1 and with TLS
INTRODUCTION = (
    "Drop two pictures of the same thing, or pick an example, and press **Match**. Lines connect the keypoints whose "
    f"descriptors are each other's nearest; their colours show the distance. Formats to download: {', '.join(FORMATS)}."
)


def build_tab(settings: AppSettings) -> None:
    """Build the tab in the current Gradio context."""
    examples = list_examples()
    gr.Markdown(INTRODUCTION)
    with gr.Row():
        first = UploadedImage("First picture", value=str(examples[0].paths[0]), height=240, elem_id="match-first")
        second = UploadedImage("Second picture", value=str(examples[0].paths[1]), height=240, elem_id="match-second")
    with gr.Row():
        example = gr.Dropdown(
            [one.name for one in examples],
            value=examples[0].name,
            label="Example",
            min_width=300,
            elem_id="match-example",
        )
        methods = gr.Dropdown(
            [(label_method(name), name) for name in list_methods(settings)],
            value=default_methods(settings),
            multiselect=True,
            max_choices=MAX_METHODS,
            label=f"Methods, one to {MAX_METHODS}",
            min_width=300,
            elem_id="match-methods",
        )
    with gr.Row():
        keypoints = gr.Slider(
            100, 5000, 2000, step=100, label="Keypoints per picture", min_width=280, elem_id="match-keypoints"
        )
        ratio = gr.Slider(0.5, 1.0, 1.0, step=0.01, label="Ratio test (1: none)", min_width=280, elem_id="match-ratio")
        threshold = gr.Slider(
            0.5, 10.0, 1.5, step=0.1, label="Pixel threshold", min_width=280, elem_id="match-threshold"
        )
    with gr.Row():
        geometry = gr.Radio(
            GEOMETRIES, value="fundamental", label="Geometry", min_width=260, scale=2, elem_id="match-geometry"
        )
        view = gr.Radio(VIEWS, value="verified", label="View", min_width=300, scale=3, elem_id="match-view")
        with gr.Column(min_width=260, scale=2):
            wide = gr.Checkbox(label="Wide: tilted views if plain matching fails", elem_id="match-wide")
    with gr.Row():
        match = gr.Button("Match", variant="primary", scale=4, elem_id="match-run")
        cancel = gr.Button("Cancel", scale=1, elem_id="match-cancel")
    status = gr.HTML(elem_id="match-status")
    table = gr.HTML(elem_id="match-table")
    panels = gr.HTML(elem_id="match-panels")
    links = gr.HTML(elem_id="match-links")
    with gr.Accordion("Reproduce: Python and command line", open=False):
        with gr.Row():
            copy_python = gr.Button("Copy as Python", size="sm", elem_id="match-copy-python")
            copy_command = gr.Button("Copy as command", size="sm", elem_id="match-copy-command")
        python = gr.Code(language="python", label="Python", interactive=False, wrap_lines=True, elem_id="match-python")
        command = gr.Code(
            language="shell", label="Command", interactive=False, wrap_lines=True, elem_id="match-command"
        )

    events = MatchEvents(settings, open_store(settings))
    chosen = [methods, keypoints, ratio, geometry, threshold, wide, view]
    shown = [table, panels, links, python, command]
    work: dict[str, Any] = {"concurrency_id": WORK, "concurrency_limit": 1, "api_visibility": "private"}
    run = gr.on(
        [match.click, keypoints.release],
        events.run,
        [first, second, *chosen],
        [status, *shown],
        show_progress="minimal",
        show_progress_on=status,
        trigger_mode="always_last",  # pictures may have changed since
        **work,
    )
    refine = gr.on(
        [ratio.change, threshold.change, geometry.change],
        events.refine,
        chosen,
        [status, *shown],
        show_progress="hidden",
        trigger_mode="always_last",
        **work,
    )
    cancel.click(events.cancelled, None, status, cancels=[run, refine], queue=False, api_visibility="private")
    view.change(events.show, view, panels, show_progress="hidden", trigger_mode="always_last", **work)
    example.input(
        events.choose, example, [first, second], show_progress="hidden", queue=False, api_visibility="private"
    )
    for button, code in ((copy_python, python), (copy_command, command)):
        button.click(events.copied, code, None, js=COPY, queue=False, show_progress="hidden", api_visibility="private")
    page = Context.root_block
    assert page is not None
    page.unload(events.leave)
