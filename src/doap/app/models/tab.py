"""Components of the Models tab."""

import gradio as gr

from doap.app.settings import AppSettings


def build_tab(settings: AppSettings) -> None:
    """Build the Models tab."""
    gr.Markdown(f"Models on {settings.device}.")
