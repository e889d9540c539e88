"""What happens in the Match tab."""

import html
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from doap.app.holders import open_holders
from doap.app.match.code import command_lines, python_code
from doap.app.match.downloads import FORMATS, ROUTE
from doap.app.match.examples import find_example
from doap.app.match.pair import MatchOptions, MethodResult, filter_and_verify, match_pictures
from doap.app.match.pictures import read_picture
from doap.app.match.session import MatchSession, SessionStore
from doap.app.match.views import View, render_session
from doap.app.methods import check_methods, label_method
from doap.app.reporting import error_line, reports_errors
from doap.app.settings import AppSettings
from doap.app.work import Step, run_in_steps
from doap.choices import Geometry
from doap.errors import DoapError
from doap.types import StepProgress

STEPS = ("describe", "match", "verify", "wide")  # columns of the table
HINT = "Nothing was verified: a larger threshold, more keypoints or Wide may help."

NOTHING = ("",) * 5  # table, panels, links, program and commands

Update = tuple[Any, ...]


class MatchEvents:
    """Functions that Gradio calls; they know the visitor by the session of the request.

    Args:
        settings: Limits and device.
        store: Results of all visitors.
    """

    def __init__(self, settings: AppSettings, store: SessionStore) -> None:
        self._settings = settings
        self._store = store
        self._holders = open_holders(settings)

    @reports_errors
    def run(
        self,
        first: str | None,
        second: str | None,
        methods: list[str],
        keypoints: int,
        ratio: float,
        geometry: Geometry,
        threshold: float,
        wide: bool,
        view: View,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Match two pictures; yield the progress, then the result."""
        visitor = str(request.session_hash)
        try:
            if first is None or second is None:
                raise DoapError("choose two pictures, or an example")
            options = self._options(methods, keypoints, ratio, geometry, threshold, wide)
            last = self._store.get(visitor)
            shown = [picture.path for picture in last.pictures] if last else []  # stay if the work is cancelled
            self._holders.hold(visitor, "match", [first, second, *shown])
            if last and last.options == options and [str(one.path) for one in last.pictures] == [first, second]:
                yield self._finish(last, view, visitor)  # pressed again
            else:
                yield from self._match((first, second), options, view, visitor)
        except Exception as error:  # matches of other pictures must not stay beside these
            self._forget_pictures(visitor, {Path(path) for path in (first, second) if path})
            self._store.drop(visitor)
            yield (_status(f"Failed: {error_line(error)}"), *NOTHING)
            raise

    @reports_errors
    def refine(
        self,
        methods: list[str],
        keypoints: int,
        ratio: float,
        geometry: Geometry,
        threshold: float,
        wide: bool,
        view: View,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Apply ratio, geometry and threshold to the matches on the page; wide matches are made anew."""
        del methods, keypoints, wide  # those of the matches on the page hold until the visitor presses Match
        visitor = str(request.session_hash)
        session = self._store.get(visitor)
        if session is None:
            yield _unchanged()
            return
        options = replace(session.options, ratio=_ratio(ratio), geometry=geometry, threshold=round(threshold, 3))
        if options.wide:
            paths = str(session.pictures[0].path), str(session.pictures[1].path)
            yield from self._match(paths, options, view, visitor)
            return
        results = tuple(filter_and_verify(result, options) for result in session.results)
        yield self._finish(replace(session, options=options, results=results), view, visitor)

    @reports_errors
    def show(self, view: View, request: gr.Request) -> Any:
        """Draw the same matches in another view."""
        session = self._store.get(str(request.session_hash))
        return gr.skip() if session is None else render_session(session, view)

    @reports_errors
    def choose(self, name: str) -> tuple[str, str]:
        """Return the pictures of an example."""
        first, second = find_example(name).paths
        return str(first), str(second)

    def cancelled(self) -> str:
        """Return the status after the work was cancelled."""
        return _status("Cancelled.")

    def copied(self, text: str) -> None:
        """Say that the browser copied a text."""
        if text:
            gr.Info("Copied.", duration=2)
        else:
            gr.Info("Press Match first.", duration=3)

    def leave(self, request: gr.Request) -> None:
        """Forget a visitor who left, and delete the pictures of the last matches, unless others use them."""
        visitor = str(request.session_hash)
        session = self._store.drop(visitor)
        self._holders.release(visitor)
        self._holders.delete(_own_paths(session))

    def _options(
        self, methods: list[str], keypoints: int, ratio: float, geometry: Geometry, threshold: float, wide: bool
    ) -> MatchOptions:
        check_methods(methods, self._settings)
        return MatchOptions(tuple(methods), int(keypoints), _ratio(ratio), geometry, round(threshold, 3), wide)

    def _match(self, paths: tuple[str, str], options: MatchOptions, view: View, visitor: str) -> Iterator[Update]:
        def work(progress: StepProgress) -> MatchSession:
            progress("reading", 0, None)
            (first, first_image), (second, second_image) = (read_picture(path, self._settings) for path in paths)
            pictures = first, second
            results = match_pictures(pictures, (first_image, second_image), options, self._settings.device, progress)
            return MatchSession(pictures, options, tuple(results))

        steps = run_in_steps(work)
        while True:
            try:
                yield (_progress(next(steps)), *_unchanged()[1:])
            except StopIteration as end:
                session: MatchSession = end.value
                break
        self._forget_pictures(visitor, {picture.path for picture in session.pictures})
        yield self._finish(session, view, visitor)

    def _forget_pictures(self, visitor: str, kept: set[Path]) -> None:
        """Delete the pictures of earlier matches of a visitor, except those still chosen or used by others."""
        self._holders.hold(visitor, "match", kept)
        self._holders.delete(_own_paths(self._store.get(visitor)))

    def _finish(self, session: MatchSession, view: View, visitor: str) -> Update:
        self._store.put(visitor, session)
        is_verified = any(result.matches.matrix is not None for result in session.results)
        device = self._settings.device
        return (
            _status("Done." if is_verified else HINT),
            _table(session),
            render_session(session, view),
            _links(session),
            python_code(session, device),
            command_lines(session, device),
        )


def _own_paths(session: MatchSession | None) -> list[Path]:
    """Return the files of pictures that are no examples."""
    return [picture.path for picture in session.pictures if not picture.is_example] if session else []


def _ratio(value: float) -> float | None:
    """Return the ratio of the slider, whose end means no test."""
    return None if value >= 1 else round(value, 3)


def _unchanged() -> Update:
    return tuple(gr.skip() for _ in range(6))


def _status(text: str) -> str:
    return f'<div class="doap-status" role="status">{html.escape(text)}</div>'


def _progress(step: Step) -> str:
    bar = (
        "<progress></progress>"
        if step.total is None
        else f'<progress max="{step.total}" value="{step.done}"></progress>'
    )
    return f'<div class="doap-status" role="status">{bar}<span>{html.escape(step.name)}</span></div>'


def _table(session: MatchSession) -> str:
    """Return one row per method: bytes, counts and milliseconds."""
    times = [name for name in STEPS if any(name in result.milliseconds for result in session.results)]
    columns = ["method", "bytes", "keypoints", "mutual", "verified", *(f"{name}, ms" for name in times)]
    rows = "".join(_row([label_method(result.method), *_cells(result, times)]) for result in session.results)
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    region = '<div class="doap-table" tabindex="0" role="region" aria-label="Numbers of all methods">'
    return f"{region}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _cells(result: MethodResult, times: list[str]) -> list[str]:
    matches = result.matches
    verified = "none" if matches.matrix is None else f"{int(matches.inliers.sum()):,}"
    counts = [str(result.bytes), f"{len(result.first):,} / {len(result.second):,}", f"{len(matches):,}", verified]
    return counts + [f"{result.milliseconds[name]:,.1f}" for name in times]


def _row(cells: list[str]) -> str:
    first, *others = (html.escape(cell) for cell in cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"


def _links(session: MatchSession) -> str:
    """Return links of downloads, one line per method."""
    lines = []
    for number, result in enumerate(session.results):
        name = html.escape(label_method(result.method))
        base = f"{ROUTE}/{session.token}/{number}"
        links = "".join(
            f'<a href="{base}/{kind}" download aria-label="Download {kind} of {name}">{kind}</a>' for kind in FORMATS
        )
        lines.append(f'<div class="doap-links"><span>Download {name}:</span>{links}</div>')
    return "".join(lines)
