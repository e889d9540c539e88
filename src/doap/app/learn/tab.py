"""The Learn tab."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from gradio.context import Context

from doap.app.holders import open_holders
from doap.app.learn.events import Stage
from doap.app.learn.photos import MIN_PHOTOS
from doap.app.learn.query import QUANTILES
from doap.app.learn.sessions import Sessions
from doap.app.learn.view import LearnView, render_curves, render_lists, render_summary
from doap.app.reporting import reports_errors
from doap.app.settings import AppSettings
from doap.app.uploads import read_upload
from doap.errors import DoapError
from doap.features.image_input import read_image
from doap.files import printable
from doap.images.reading import PHOTO_SUFFIXES
from doap.types import Grey, Kind

QUEUE = "learn"  # of its own: a training takes a minute, and runs in a process of its own
MAX_SIDE = 800  # pixels of a photo; larger ones are reduced
KINDS: list[tuple[str, Kind]] = [("128 floats", "real"), ("256 bits", "binary")]
QUERIES = [(f"Query {number}", number - 1) for number in range(1, len(QUANTILES) + 1)]
INTRODUCTION = """
Drop about ten different photos with texture (buildings, plants, text, fabric). A small network is trained on them for
about {seconds:g} seconds to maximise Average Precision: other views of the same point should be ranked before all other
points. A fifth of the photos is kept for validation. Photos and unfinished weights are deleted at the end.
"""
TURN = "waiting until another training has ended"
DOWNLOAD = """
Put both files into one folder: `doap.load("NAME.safetensors")` in Python, or `--model NAME.safetensors` on the command
line, where NAME is that of the files.
"""


def build_tab(settings: AppSettings) -> None:
    """Build the tab in the current Gradio context."""
    sessions = Sessions(settings.max_sessions, settings.learn_seconds)
    gr.Markdown(INTRODUCTION.format(seconds=settings.learn_seconds))
    with gr.Row():
        uploads = gr.File(
            label=f"Photos, {MIN_PHOTOS} to {settings.max_photos}",
            file_count="multiple",
            file_types=sorted(PHOTO_SUFFIXES),
            elem_id="learn-photos",
            height=180,
            min_width=340,
            scale=2,
        )
        with gr.Column(min_width=260):
            kind = gr.Radio(KINDS, value=KINDS[0][1], label="Descriptor to train")
            with gr.Row():
                start = gr.Button("Train", variant="primary", min_width=100)
                stop = gr.Button("Stop", min_width=100)
    summary = gr.HTML(elem_id="learn-summary", apply_default_css=False)
    curves = gr.HTML(elem_id="learn-curves", apply_default_css=False)
    with gr.Column(visible=False) as download:
        with gr.Row():
            weights = gr.DownloadButton("Download the weights", variant="primary", min_width=200)
            card = gr.DownloadButton("Download their card", min_width=200)
        gr.Markdown(DOWNLOAD)
    query = gr.Radio(QUERIES, value=0, label="Ranked list of a validation query, epoch by epoch", visible=False)
    lists = gr.HTML(elem_id="learn-lists", apply_default_css=False)
    shown = [summary, curves, query, lists, download, weights, card]

    @reports_errors
    def announce(paths: Sequence[str] | None, request: gr.Request) -> str:
        try:
            _check_number(paths or [], settings)
        except DoapError as error:
            return render_summary(LearnView(failure=str(error)))
        open_holders(settings).hold(_visitor(request), "learn", paths or [])
        sessions.expect(_visitor(request))
        return render_summary(LearnView(stage=Stage(TURN if sessions.is_busy else "starting", 0)))

    @reports_errors
    def train(paths: Sequence[str] | None, chosen: Kind, number: int, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        ranked = 0
        try:
            photos = _read_photos(paths or [], settings)
            for view in sessions.run(_visitor(request), photos, chosen, number):
                is_new, ranked = len(view.ranks) != ranked, len(view.ranks)
                yield _show(view, is_new)
        except DoapError as error:
            yield _show(LearnView(failure=str(error)), False)

    @reports_errors
    def choose_query(number: int, request: gr.Request) -> str:
        view = sessions.view(_visitor(request))
        view.query = number
        return render_lists(view)

    def cancel(request: gr.Request) -> str:
        return render_summary(sessions.stop(_visitor(request)))

    def leave(request: gr.Request) -> None:
        sessions.forget(_visitor(request))

    private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    announced = start.click(announce, uploads, summary, queue=False, trigger_mode="once", **private)
    running = announced.success(
        train, [uploads, kind, query], shown, concurrency_id=QUEUE, concurrency_limit=1, **private
    )
    stop.click(cancel, None, summary, cancels=[running], queue=False, **private)
    query.input(choose_query, query, lists, queue=False, **private)
    page = Context.root_block
    assert page is not None
    page.unload(leave)


def _show(view: LearnView, is_new: bool) -> tuple[Any, ...]:
    """Return the values of the components that show a training; those that did not change are skipped."""
    skip = gr.skip()
    return (
        render_summary(view),
        render_curves(view),
        gr.Radio(visible=bool(view.queries)),
        render_lists(view) if is_new or not view.queries else skip,
        gr.Column(visible=view.done is not None),
        *((gr.DownloadButton(value=str(path)) for path in view.files) if view.files else (skip, skip)),
    )


def _read_photos(paths: Sequence[str], settings: AppSettings) -> list[tuple[str, Grey]]:
    """Decode photos; equal names are numbered.

    Raises:
        DoapError: If there are too few or too many, or one cannot be decoded.
    """
    _check_number(paths, settings)
    photos: dict[str, Grey] = {}
    for path in paths:
        name = printable(Path(path).name)
        unique = name if name not in photos else f"{name} ({len(photos) + 1})"
        photos[unique] = np.asarray(read_image(read_upload(path, settings, MAX_SIDE)))
    return list(photos.items())


def _check_number(paths: Sequence[str], settings: AppSettings) -> None:
    if not MIN_PHOTOS <= len(paths) <= settings.max_photos:
        raise DoapError(f"{len(paths)} photos chosen; choose {MIN_PHOTOS} to {settings.max_photos} photos")


def _visitor(request: gr.Request) -> str:
    return str(request.session_hash)
