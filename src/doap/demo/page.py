"""The demo's page: one HTML file with its pictures beside it, every number computed from the study."""

import html
import shlex
from pathlib import Path

import numpy as np
import torch

from doap.demo import photos
from doap.demo.run import COPIES, KEYPOINTS, RECIPES, Study
from doap.evaluation.harness import figures
from doap.evaluation.harness.table import Row, Table
from doap.evaluation.image_pairs import warped
from doap.features.drawing import draw_matches
from doap.files import write_text
from doap.images.jitter import LEVELS, measure_overlap
from doap.training.curves import draw_losses
from doap.training.log import read_losses
from doap.version import __version__

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 1000px; margin: 2em auto; padding: 0 1em }
h1 { margin-bottom: 0 } h2 { margin-top: 2em } img { max-width: 100% }
table { border-collapse: collapse } td, th { padding: .3em .9em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } tr.ours { background: #eef5ee } code { background: #f3f3f3 }
figcaption { color: #555 } figure { margin: 1em 0 }
"""


def write_page(study: Study, folder: Path, seconds: float) -> Path:
    """Draw the figures and write index.html; returns its path."""
    draw_losses({name: read_losses(run) for name, run in study.runs.items()}, folder / "loss.png")
    figures.draw_bars(warped.mean_scores(study.scores), folder / "scores.png")
    figures.draw_lists(study.example.queries, study.example.lists, folder / "lists.png")
    figures.draw_groups(_some_groups(study), ["plain", *LEVELS], folder / "groups.png")
    _draw_stereo(study, folder / "matches.png")
    page = folder / "index.html"
    write_text(page, _html(study, seconds))
    return page


def verdict(study: Study) -> str:
    """What the numbers say, in two sentences, whichever way they fell."""
    rows = {str(row["descriptor"]): float(row["mAP"]) for row in warped.mean_scores(study.scores)}
    sentences = []
    for name in RECIPES:
        peers = ", ".join(
            f"{abs(rows[name] - rows[peer]):.1f} {'above' if rows[name] >= rows[peer] else 'below'} {peer}"
            for peer in ("SIFT", "RootSIFT")
        )
        sentences.append(
            f"{name}: {rows[f'{name} untrained']:.1f} untrained, {rows[name]:.1f} mAP after training by AP, {peers}."
        )
    return " ".join(sentences)


def _html(study: Study, seconds: float) -> str:
    real, binary = RECIPES.values()
    overlaps = ", ".join(f"{level} {measure_overlap(level):.2f}" for level in LEVELS)
    correspondences = np.mean([warped.correspondence_matrix(pair).any(1).sum() for pair in study.pairs])
    matches = study.stereo_matches
    body = f"""
<h1>Descriptors trained by Average Precision</h1>
<p>doap {__version__}, torch {torch.__version__}, {torch.get_num_threads()} CPU threads,
{seconds / 60:.1f} minutes. Made by <code>doap demo</code>.</p>
<p><b>{html.escape(verdict(study))}</b></p>

<h2>Matching photos never trained on</h2>
{_table(study)}
<p>{html.escape(_whence(study))}</p>
<figure><img src="scores.png" alt="mAP of each descriptor"><figcaption>
{len(study.pairs)} pairs: each of {len(photos.HELD_OUT)} held-out photos ({_names(photos.HELD_OUT)}) against {COPIES}
copies of itself under known homographies (turned up to 45°, zoomed 0.6 to 1.25, tilted) and light changes. Up to
{KEYPOINTS} DoG keypoints an image, the same for every descriptor; {correspondences:.0f} of them have a counterpart on
average. Each keypoint proposes its nearest neighbour; AP over the proposals ranked by distance; mean over pairs.
</figcaption></figure>

<h2>One real pair</h2>
<figure><img src="matches.png" alt="verified matches"><figcaption>
A stereo pair that was never trained on, matched by {html.escape(study.stereo_features[0].model)}, which ships:
{len(matches)} mutual nearest neighbours,
{int(matches.inliers.sum())} of them on one epipolar geometry.</figcaption></figure>

<h2>What a query ranks first, before and after</h2>
<figure><img src="lists.png" alt="ranked lists"><figcaption>
Four patches of <i>{html.escape(study.pairs[0].name.split("/")[0])}</i>, drawn at random, and what each ranks
first among all {len(study.pairs[0].second.frames)} patches of a warped copy. Green: the same point. Before: the
network as initialised. "rank" is that of the first right one.</figcaption></figure>

<h2>The training</h2>
<figure><img src="loss.png" alt="loss against step"><figcaption>
1 - AP, every patch of a batch a query that ranks all others, plus 1 - AP of the one list that holds the pairs of all
queries: relaxed, so that it has a gradient.</figcaption></figure>
<p>{html.escape(repr(study.patches))}, cut around DoG keypoints of {len(photos.TRAINING)} photos
({_names(photos.TRAINING)}). L2Net with a first layer of {real.width} channels: narrower than the paper's 32, so that
this takes minutes on a CPU. Lists of {real.batch_size:,}, {real.epochs} epochs, SGD; {real.dimensions} dimensions (real)
and {binary.dimensions} bits (binary).</p>
<figure><img src="groups.png" alt="patch groups"><figcaption>
Groups of the training set: a point seen plainly, and under jittered views. Frames overlap their jittered selves by
{overlaps} on average.</figcaption></figure>

<h2>Use them</h2>
<pre><code>doap match A.jpg B.jpg -o matches.png --model {html.escape(_weights(study))}</code></pre>
"""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>doap demo</title>'
        f"<style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def score_table(study: Study) -> Table:
    """Return mAP, correct neighbours and descriptor size, best mAP first."""
    rows = []
    for row in warped.mean_scores(study.scores):
        name = str(row["descriptor"])
        rows.append(Row((name, f"{row['mAP']:.1f}", f"{row['correct neighbours']:.1f}", str(study.bytes[name]))))
    return Table(("descriptor", "mAP %", "correct neighbours %", "bytes"), tuple(rows))


def _table(study: Study) -> str:
    ours = {*RECIPES, *study.shipped}
    table = score_table(study)
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        f"<tr{' class=ours' if row.cells[0] in ours else ''}>"
        f"{''.join(f'<td>{html.escape(cell)}</td>' for cell in row.cells)}</tr>"
        for row in table.rows
    )
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _whence(study: Study) -> str:
    """Which rows of the table were trained by the demo, and which were not."""
    here = f"Trained just now: {', '.join(RECIPES)}."
    return f"{here} Shipped with doap: {', '.join(study.shipped)}." if study.shipped else here


def _some_groups(study: Study, count: int = 6) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    starts = study.patches.members_start
    groups = np.linspace(0, len(starts) - 2, count).astype(int)
    members = np.stack([study.patches.members[starts[g] : starts[g + 1]] for g in groups])
    return study.patches.take(members.ravel()).reshape(*members.shape, study.patches.size, study.patches.size)


def _draw_stereo(study: Study, path: Path) -> None:
    points = study.stereo_matches.verified_points(*study.stereo_features)
    counts = f"{len(points[0])} verified of {len(study.stereo_matches)} mutual matches"
    draw_matches(*study.stereo, *points, f"{counts} ({study.stereo_features[0].model})", path)


def _weights(study: Study) -> str:
    return shlex.quote(str(next(iter(study.runs.values())) / "weights.safetensors"))


def _names(paths: tuple[Path, ...]) -> str:
    return ", ".join(html.escape(path.stem) for path in paths)
