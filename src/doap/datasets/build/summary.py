"""The summary page of a built set: what came of each scene, how large groups are, and how they look."""

import csv
import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from doap.datasets.build.assembly import Scene
from doap.datasets.sets.contact_sheet import draw_frames_sheet
from doap.datasets.sets.frame_set import SOURCES, FrameSet

ROWS = 14  # groups on a contact sheet
COLOURS = {"views": "#4477aa", "static": "#ccbb44", "tracks": "#ee6677"}
MEANING = {
    "views": "frames of single photos; patches are jittered views of them",
    "static": "frames of still views, the same in pictures under different light",
    "tracks": "points tracked through overlapping photos",
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}"
    "img{max-width:100%}table{border-collapse:collapse;font-size:14px}td,th{padding:.15em .8em .15em 0;"
    "text-align:left;border-bottom:1px solid #ddd}td.n,th.n{text-align:right}figcaption{color:#555}"
    "figure{margin:1em 0}li{font-size:14px}"
)


def write_summary(folder: Path, frames: FrameSet, scenes: Sequence[Scene], left_out: Sequence[str]) -> None:
    """Write summary.html with its pictures, and scenes.csv, into the folder of a set."""
    _write_table(folder / "scenes.csv", scenes)
    _draw_sizes(folder / "sizes.png", frames, scenes)
    sheets = []
    for number, source in enumerate(SOURCES):
        if (frames.sources == number).any():
            draw_frames_sheet(frames.part(frames.sources == number), folder / f"sheet-{source}.png", ROWS, seed=0)
            sheets.append(source)
    page = _page(frames, scenes, left_out, sheets)
    (folder / "summary.html").write_text(page, encoding="utf-8")


def _write_table(path: Path, scenes: Sequence[Scene]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["scene", "source", "photos", "photos used", "groups", "frames", "median angle", "how"])
        for scene in scenes:
            found = scene.found
            used, groups = len(np.unique(found.photos)), len(found.angles)
            angle = f"{np.median(found.angles):.1f}"
            table.writerow(
                [scene.name, found.source, len(scene.photos), used, groups, len(found.groups), angle, found.note]
            )


def _draw_sizes(path: Path, frames: FrameSet, scenes: Sequence[Scene]) -> None:
    """How many frames groups have, and from how far apart tracked points were seen."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = np.diff(frames.members_start)
    source = frames.sources[frames.members[frames.members_start[:-1]]]
    several = [(name, sizes[source == number]) for number, name in enumerate(SOURCES) if name != "views"]
    several = [(name, values) for name, values in several if len(values)]
    if several:
        edges = np.arange(1.5, max(values.max() for _, values in several) + 1.5)
        names = [name for name, _ in several]
        colours = [COLOURS[name] for name in names]
        left.hist([values for _, values in several], edges, stacked=True, label=names, color=colours)
        left.legend(frameon=False)
    left.set(xlabel="frames in a group (still views and tracks)", ylabel="groups", title="Sizes of groups")
    angles = np.concatenate([np.zeros(0), *(s.found.angles for s in scenes if s.found.source == "tracks")])
    angles = angles[angles > 0]
    if len(angles):
        right.hist(angles, 60, color=COLOURS["tracks"])
    right.set(xlabel="degrees between the directions a point was seen from", ylabel="points", title="Viewing angles")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def _page(frames: FrameSet, scenes: Sequence[Scene], left_out: Sequence[str], sheets: Sequence[str]) -> str:
    totals = "".join(_total(frames, scenes, number) for number, name in enumerate(SOURCES) if name in sheets)
    pictures = "".join(
        f'<figure><img src="sheet-{source}.png" alt="groups"><figcaption>{MEANING[source].capitalize()}: groups '
        "drawn at random, one a row. Groups of fewer than four frames are filled up with jittered views.</figcaption>"
        "</figure>"
        for source in sheets
    )
    listed = "".join(_row(scene) for scene in scenes if scene.found.source != "views")
    table = (
        f"<h2>Still views and tracked scenes</h2><table><tr><th>scene</th><th>how</th><th class=n>groups</th>"
        f"<th class=n>median angle</th></tr>{listed}</table>"
        if listed
        else ""
    )
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in left_out)
    missing = f"<h2>Left out</h2><ul>{lines}</ul>" if lines else "<p>Nothing was left out.</p>"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A set from photos</title>
<style>{STYLE}</style></head><body><h1>A set from photos</h1>
<p>{html.escape(repr(frames))}; {len(frames.overlaps):,} pairs of groups overlap and are never each other's
negatives.</p>
<table><tr><th>source</th><th class=n>scenes</th><th class=n>photos</th><th class=n>groups</th>
<th class=n>frames</th></tr>
{totals}</table>
<figure><img src="sizes.png" alt="sizes and angles"></figure>
{pictures}{table}{missing}
<p>Every scene, also single photos, stands in <a href="scenes.csv">scenes.csv</a>.</p></body></html>
"""


def _total(frames: FrameSet, scenes: Sequence[Scene], number: int) -> str:
    here = frames.sources == number
    count = sum(scene.found.source == SOURCES[number] for scene in scenes)
    cells = (count, len(np.unique(frames.photos[here])), len(np.unique(frames.groups[here])), int(here.sum()))
    numbers = "".join(f"<td class=n>{value:,}</td>" for value in cells)
    return f"<tr><td>{SOURCES[number]}: {MEANING[SOURCES[number]]}</td>{numbers}</tr>"


def _row(scene: Scene) -> str:
    angle = np.median(scene.found.angles)
    shown = f"{angle:.0f}°" if angle > 0 else ""
    return (
        f"<tr><td>{html.escape(scene.name)}</td><td>{html.escape(scene.found.note)}</td>"
        f"<td class=n>{len(scene.found.angles):,}</td><td class=n>{shown}</td></tr>"
    )
