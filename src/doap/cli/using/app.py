"""`doap app`."""

from typing import Annotated

import typer

from doap.cli.console import choose_device, say
from doap.cli.options.model import DeviceOption

EXAMPLE = "Example: doap app --model out/run/weights.safetensors"


def app(
    host: Annotated[str, typer.Option(help="Address to bind to; 0.0.0.0 is open to other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 7860,
    model: Annotated[
        list[str] | None, typer.Option(help="Also offer this model: a baseline, or path of weights; repeatable.")
    ] = None,
    device: DeviceOption = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open a local web page to match pictures, see how a query ranks patches, watch a training and compare models.

    Only this machine reaches the page unless --host says otherwise. Nothing is sent or downloaded; uploaded pictures
    are deleted at the end. Press Ctrl-C to stop.
    """
    from doap.app.server import serve
    from doap.app.settings import AppSettings

    settings = AppSettings(host=host, port=port, device=choose_device(device), models=tuple(model or ()))
    serve(settings, lambda address: say(f"doap is at {address} (Ctrl-C stops it)"), open_browser=browser)
