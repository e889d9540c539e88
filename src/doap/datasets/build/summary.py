"""Summary page of a built set: its scenes, the sizes of its groups, and samples of them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from doap.datasets.build.assembly import Scene
from doap.datasets.sets.contact_sheet import draw_frames_sheet
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.errors import inflect
from doap.files import printable

SHEET_ROWS = 14  # groups on a contact sheet
COLOURS = {"views": "#4477aa", "static": "#ccbb44", "tracks": "#ee6677"}
MEANINGS = {
    "views": "frames of single photos; patches are jittered views of them",
    "static": "frames of static views, the same in photos under different light",
    "tracks": "points tracked through overlapping photos",
}
TEMPLATE = "summary.html.j2"
HISTOGRAMS = "sizes.png"


@dataclass(frozen=True)
class SourceRow:
    """Totals of one source, and the file of its contact sheet."""

    name: str
    meaning: str
    sheet: str
    scenes: int
    photos: int
    groups: int
    frames: int


@dataclass(frozen=True)
class SceneRow:
    """A static view or tracked scene; the angle is empty if it is unknown."""

    name: str
    note: str
    groups: int
    angle: str


def write_summary(folder: Path, frames: FrameSet, scenes: Sequence[Scene], skipped: Sequence[str]) -> None:
    """Write summary.html with its images, and scenes.csv, into the folder of a set."""
    _write_table(folder / "scenes.csv", scenes)
    has_histograms = _draw_histograms(folder / HISTOGRAMS, frames, scenes)
    sources = _count_sources(frames, scenes)
    for source in sources:
        selected = frames.select(frames.sources == SOURCES.index(source.name))
        draw_frames_sheet(selected, folder / source.sheet, SHEET_ROWS, seed=0)
    page = render_summary(frames, sources, scenes, skipped, HISTOGRAMS if has_histograms else "")
    (folder / "summary.html").write_text(page, encoding="utf-8")


def render_summary(
    frames: FrameSet, sources: Sequence[SourceRow], scenes: Sequence[Scene], skipped: Sequence[str], histograms: str
) -> str:
    """Return the HTML of the page, with the picture of the histograms if it has a name; all names are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    overlaps = len(frames.overlaps)
    return environment.get_template(TEMPLATE).render(
        title=repr(frames),
        overlaps=f"{overlaps:,} {inflect(overlaps, 'pair of groups overlaps', 'pairs of groups overlap')}",
        sources=sources,
        histograms=histograms,
        scenes=[_scene_row(scene) for scene in scenes if scene.frames.source != "views"],
        skipped=[printable(line) for line in skipped],
    )


def _write_table(path: Path, scenes: Sequence[Scene]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["scene", "source", "photos", "photos used", "groups", "frames", "median angle", "how"])
        for scene in scenes:
            frames = scene.frames
            used, groups = len(np.unique(frames.photos)), len(frames.angles)
            angle = f"{np.median(frames.angles):.1f}"
            table.writerow(
                [scene.name, frames.source, len(scene.photos), used, groups, len(frames.groups), angle, frames.note]
            )


def _draw_histograms(path: Path, frames: FrameSet, scenes: Sequence[Scene]) -> bool:
    """Draw the sizes of groups and the viewing angles of tracked points; return False if the set has neither."""
    sizes, angles = _sizes_by_source(frames), _viewing_angles(scenes)
    count = bool(sizes) + bool(len(angles))
    if not count:
        return False
    figure = Figure(figsize=(5 * count, 3.2), layout="constrained")
    panels = list(figure.subplots(1, count, squeeze=False)[0])
    if sizes:
        _draw_sizes(panels[0], sizes)
    if len(angles):
        _draw_angles(panels[-1], angles)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return True


def _sizes_by_source(frames: FrameSet) -> dict[str, NDArray[np.int64]]:
    """Return the sizes of the groups of static views and of tracks, where there are any."""
    sizes = np.diff(frames.members_start)
    source = frames.sources[frames.members[frames.members_start[:-1]]]
    by_source = {name: sizes[source == number] for number, name in enumerate(SOURCES) if name != "views"}
    return {name: values for name, values in by_source.items() if len(values)}


def _viewing_angles(scenes: Sequence[Scene]) -> NDArray[np.float64]:
    """Return the known viewing angles of tracked points in degrees."""
    angles = np.concatenate([np.zeros(0), *(s.frames.angles for s in scenes if s.frames.source == "tracks")])
    return np.asarray(angles[angles > 0])


def _draw_sizes(axes: Axes, sizes: dict[str, NDArray[np.int64]]) -> None:
    edges = np.arange(1.5, max(values.max() for values in sizes.values()) + 1.5).tolist()
    axes.hist(list(sizes.values()), edges, stacked=True, label=list(sizes), color=[COLOURS[name] for name in sizes])
    axes.legend(frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="frames per group (static views and tracks)", ylabel="groups", title="Sizes of groups")


def _draw_angles(axes: Axes, angles: NDArray[np.float64]) -> None:
    axes.hist(angles, 60, color=COLOURS["tracks"])
    axes.set(xlabel="angle between viewing directions [degrees]", ylabel="points", title="Viewing angles")


def _count_sources(frames: FrameSet, scenes: Sequence[Scene]) -> list[SourceRow]:
    """Return the totals of each source that the set has."""
    rows = []
    for number, name in enumerate(SOURCES):
        mask = frames.sources == number
        if mask.any():
            rows.append(
                SourceRow(
                    name,
                    MEANINGS[name],
                    f"sheet-{name}.png",
                    scenes=sum(scene.frames.source == name for scene in scenes),
                    photos=len(np.unique(frames.photos[mask])),
                    groups=len(np.unique(frames.groups[mask])),
                    frames=int(mask.sum()),
                )
            )
    return rows


def _scene_row(scene: Scene) -> SceneRow:
    angle = np.median(scene.frames.angles)
    return SceneRow(scene.name, scene.frames.note, len(scene.frames.angles), angle=f"{angle:.0f}°" if angle > 0 else "")
