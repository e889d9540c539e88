"""The methods of the page: the same in all tabs."""

import gradio as gr
import pytest

from doap.app.methods import list_methods
from doap.app.server import build_page, serve
from doap.app.settings import AppSettings
from doap.errors import DoapError


def test_match_and_rank_offer_the_models_of_the_command_line() -> None:
    settings = AppSettings(models=("mkd",))
    blocks = build_page(settings).blocks.values()
    lists = {block.label: block.choices for block in blocks if isinstance(block, gr.Dropdown)}
    match, rank = lists["Methods, one to 3"], lists["Descriptor"]
    assert match == rank
    assert [name for _, name in rank] == list_methods(settings)
    assert ("mkd", "mkd") in rank


def test_a_model_that_cannot_be_loaded_is_named_before_the_page_opens() -> None:
    with pytest.raises(DoapError, match=r"missing\.safetensors"):
        serve(AppSettings(port=0, models=("missing.safetensors",)), lambda _: pytest.fail("the page was opened"))
