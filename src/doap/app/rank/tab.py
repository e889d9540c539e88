"""The Rank tab."""

from typing import Any

import gradio as gr
import numpy as np
from gradio.context import Context

from doap.app.holders import open_holders
from doap.app.methods import check_methods, label_method, list_methods
from doap.app.rank.drawing import to_image_point
from doap.app.rank.pairs import EXAMPLES, KEYPOINTS, MAX_SIDE, own_pair
from doap.app.rank.picture import make_picture
from doap.app.rank.store import EXAMPLE, PairStore
from doap.app.rank.views import hardest_query, random_query, view_query
from doap.app.reporting import reports_errors
from doap.app.settings import WORK, AppSettings
from doap.app.uploads import UploadedImage, read_upload
from doap.errors import DoapError
from doap.features.image_input import read_image
from doap.networks import DEFAULT_MODEL

INTRODUCTION = (
    "Click a keypoint in the first picture. All patches of the second picture are ranked by the distance of their "
    "descriptors from the query; a good descriptor ranks the correct patch first. **Average Precision** is the mean "
    "precision at the ranks of the correct patches: 1 if all of them come first. The models of this page are trained "
    "to maximise it."
)
READING = (
    "Yellow square: the query patch. Yellow cross: where it should be found. Numbers: ranks; green circles are "
    "correct, red squares wrong, blue squares unknown."
)
FIRST_EXAMPLE = next(iter(EXAMPLES))


def build_tab(settings: AppSettings) -> None:
    """Build the tab in the current Gradio context."""
    store = PairStore(settings.max_sessions)
    gr.Markdown(INTRODUCTION)
    key = gr.State(EXAMPLE + FIRST_EXAMPLE, time_to_live=settings.file_seconds, delete_callback=store.remove)
    with gr.Row():
        example = gr.Radio(list(EXAMPLES), value=FIRST_EXAMPLE, label="Example with a known homography", min_width=340)
        method = gr.Dropdown(
            [(label_method(name), name) for name in list_methods(settings)],
            value=DEFAULT_MODEL,
            label="Descriptor",
            filterable=False,
            min_width=300,
        )
    with gr.Accordion("Own pictures", open=False):
        with gr.Row():
            uploads = [
                UploadedImage(f"{name} picture", elem_id=f"rank-{name.lower()}", height=220, min_width=300)
                for name in ("First", "Second")
            ]
        use = gr.Button("Rank these pictures", variant="primary")
    with gr.Row():
        with gr.Column(min_width=320):
            gr.Markdown("**First picture**: click a keypoint")
            first = make_picture("First picture", "First picture with its keypoints and the query")
        with gr.Column(min_width=320):
            gr.Markdown("**Second picture**: the five nearest patches")
            second = make_picture("Second picture", "Second picture with the five nearest patches")
    gr.Markdown(READING)
    with gr.Row(equal_height=True):
        label = "Keypoint number, instead of a click"
        query = gr.Slider(0, KEYPOINTS - 1, 0, step=1, label=label, min_width=340, scale=3, buttons=[])
        random_button = gr.Button("Random keypoint", size="md", min_width=150)
        hardest_button = gr.Button("Keypoint of lowest AP", size="md", min_width=150)
    listed = gr.HTML(elem_id="rank-list", apply_default_css=False)
    curve = gr.HTML(elem_id="rank-curve", apply_default_css=False)
    shown = [key, query, first, second, listed, curve]

    def show(pair_key: str, name: str, index: int) -> list[Any]:
        check_methods([name], settings)
        pair = store.get(pair_key)
        view = view_query(pair, name, index)
        slider = gr.Slider(maximum=len(pair.first.frames) - 1, value=index)
        return [pair_key, slider, view.first, view.second, view.html, view.curve]

    @reports_errors
    def open_tab(pair_key: str, name: str, content: str | None) -> list[Any]:
        return [gr.skip()] * len(shown) if content else show(pair_key, name, store.get(pair_key).first_query())

    @reports_errors
    def choose_example(old: str, name: str, chosen: str) -> list[Any]:
        store.remove(old)
        pair_key = EXAMPLE + chosen
        return show(pair_key, name, store.get(pair_key).first_query())

    @reports_errors
    def use_own(request: gr.Request, old: str, name: str, *paths: str | None) -> list[Any]:
        if not all(paths):
            raise DoapError("choose two pictures first")
        open_holders(settings).hold(str(request.session_hash), "rank", map(str, paths))
        pair = own_pair(*(np.asarray(read_image(read_upload(str(path), settings, MAX_SIDE))) for path in paths))
        store.remove(old)
        return [*show(store.add(pair), name, pair.first_query()), None]

    @reports_errors
    def move(pair_key: str, name: str, index: float) -> list[Any]:
        last = len(store.get(pair_key).first.frames) - 1
        return show(pair_key, name, min(max(int(index), 0), last))

    @reports_errors
    def click(pair_key: str, name: str, event: gr.SelectData) -> list[Any]:
        x, y = to_image_point(*map(float, event.index))
        return show(pair_key, name, store.get(pair_key).nearest_frame(x, y))

    @reports_errors
    def move_to_random(pair_key: str, name: str) -> list[Any]:
        return show(pair_key, name, random_query(store.get(pair_key), np.random.default_rng()))

    @reports_errors
    def move_to_hardest(pair_key: str, name: str) -> list[Any]:
        check_methods([name], settings)
        return show(pair_key, name, hardest_query(store.get(pair_key), name))

    work: dict[str, Any] = {"outputs": shown, "concurrency_id": WORK, "show_progress": "minimal"}
    latest = {**work, "trigger_mode": "always_last"}
    tab = Context.block
    assert isinstance(tab, gr.Tab)
    tab.select(open_tab, [key, method, listed], **work)
    example.input(choose_example, [key, method, example], **latest)
    use.click(use_own, [key, method, *uploads], **{**work, "outputs": [*shown, example]})  # no example is selected
    method.input(move, [key, method, query], **latest)
    query.input(move, [key, method, query], **latest)
    first.select(click, [key, method], **latest)
    random_button.click(move_to_random, [key, method], **latest)
    hardest_button.click(move_to_hardest, [key, method], **latest)
