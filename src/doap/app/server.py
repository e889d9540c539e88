"""The page with its tabs, and the server that shows it."""

import os
import socket
import tempfile
import warnings
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import FastAPI

from doap.app.match.downloads import add_downloads
from doap.app.match.session import open_store
from doap.app.methods import open_models
from doap.app.protection import Protection
from doap.app.settings import AppSettings
from doap.errors import DoapError

TABS = ("Match", "Rank", "Learn", "Models")
"""Tabs in order; the tab NAME is built by `doap.app.name.tab.build_tab`."""

TITLE = "doap"
FONT = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica", "Arial", "sans-serif"]
FONT_MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]
"""Fonts of the system: none is loaded."""


def build_page(settings: AppSettings) -> gr.Blocks:
    """Build the page with all tabs."""
    sweep = max(1, settings.file_seconds // 10)
    page = gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(sweep, settings.file_seconds))
    with page:
        gr.HTML(
            "<h1>doap</h1><p>Local image descriptors trained by Average Precision. "
            "Pictures stay on this machine and are deleted afterwards.</p>",
            elem_id="doap-header",
        )
        with gr.Tabs(overflow_behavior="wrap"):  # a menu would hide tabs on a telephone
            for name in TABS:
                with gr.Tab(name, id=name.lower()):
                    import_module(f"doap.app.{name.lower()}.tab").build_tab(settings)
    page.queue(max_size=settings.max_queue, default_concurrency_limit=1, api_open=False)
    return page


def build_server(settings: AppSettings, folder: Path) -> FastAPI:
    """Build the web application.

    Args:
        settings: Address and limits.
        folder: Empty folder for the files of visitors.
    """
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    app = FastAPI(openapi_url=None)
    add_downloads(app, open_store(settings))
    gr.mount_gradio_app(
        app,
        build_page(settings),
        "/",
        settings.host,
        settings.port,
        footer_links=[],
        run_history=False,
        max_file_size=settings.max_upload_bytes,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        show_error=True,
        theme=_theme(),
        css=_assets("css"),
        head=f"<script>{_assets('js')}</script>",
    )
    app.add_middleware(Protection, settings=settings, folder=folder)
    return app


def _theme() -> gr.themes.Base:
    """Return a theme with fonts of the system, and buttons whose text has enough contrast."""
    theme = gr.themes.Base(primary_hue="blue", neutral_hue="slate", font=FONT, font_mono=FONT_MONO)
    theme.set(button_primary_background_fill="*primary_600", button_primary_background_fill_hover="*primary_700")
    return theme


def _assets(suffix: str) -> str:
    """Return all style sheets or scripts of the page and of its tabs, one after the other."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob(f"*.{suffix}")))


@contextmanager
def listening(settings: AppSettings) -> Iterator[socket.socket]:
    """Yield a socket bound to the address of the settings.

    Raises:
        DoapError: If the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DoapError(
                f"{settings.host}:{settings.port}: cannot be used ({reason}); choose another --port or --host"
            ) from error
        yield listener


def serve(settings: AppSettings, on_start: Callable[[str], None], open_browser: bool = False) -> None:
    """Show the page until the process is interrupted; files of visitors are deleted then.

    Args:
        settings: Address and limits.
        on_start: Called with the address of the page when it can be opened.
        open_browser: Open the page in the browser of this machine.

    Raises:
        DoapError: If the address cannot be used, or a model of the settings cannot be loaded.
    """
    open_models(settings)
    with listening(settings) as listener, tempfile.TemporaryDirectory(prefix="doap-app-") as folder:
        host, port = listener.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        warnings.filterwarnings("ignore", module="gradio")  # those of its use of pandas concern no visitor
        server = uvicorn.Server(uvicorn.Config(build_server(settings, Path(folder)), log_level="warning"))
        on_start(address)
        if open_browser:
            webbrowser.open(address)
        server.run([listener])
