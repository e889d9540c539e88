"""Components of the Match tab."""

import gradio as gr

from doap.app.settings import AppSettings


def build_tab(settings: AppSettings) -> None:
    """Build the Match tab."""
    gr.Markdown(f"Match on {settings.device}.")
