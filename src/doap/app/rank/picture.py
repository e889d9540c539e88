"""A picture component that sends its pixels with the event, so that no file is made."""

import base64
from typing import Any

import cv2
import gradio as gr
from gradio.data_classes import ImageData

from doap.app.uploads import without_stub

JPEG_QUALITY = 88

with without_stub():

    class InlinePicture(gr.Image):
        """A picture made by the server, (H, W, 3) uint8. Gradio takes its settings from the parent's signature."""

        is_template = True  # shown by the parts of gr.Image

        def postprocess(self, value: Any) -> ImageData | None:
            """Encode the picture as a data URI."""
            if value is None:
                return None
            bgr = cv2.cvtColor(value, cv2.COLOR_RGB2BGR)
            _, content = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            text = base64.b64encode(content.tobytes()).decode("ascii")
            return ImageData(orig_name="picture.jpg", url=f"data:image/jpeg;base64,{text}")


def make_picture(label: str, alt: str) -> InlinePicture:
    """Make a picture that can be clicked on, with an alternative text."""
    return InlinePicture(
        label=label, show_label=False, interactive=False, buttons=[], alt_text=alt, elem_classes=["rank-picture"]
    )
