"""The demo's page: one HTML file with its pictures beside it; every number comes from the result."""

import shlex
from pathlib import Path

import numpy as np
import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from numpy.typing import NDArray

from doap.demo import evaluation, photos, training
from doap.demo.run import DemoResult
from doap.evaluation.harness.figures import draw_bars, draw_groups, draw_lists
from doap.evaluation.image_pairs.warped import correspondence_matrix
from doap.files import write_text
from doap.images.jitter.views import LEVELS, measure_overlap
from doap.training.curves import draw_losses
from doap.training.log import read_losses
from doap.version import __version__

TEMPLATE = "page.html.j2"


def write_page(result: DemoResult, folder: Path, seconds: float) -> Path:
    """Draw the figures and write index.html; return its path."""
    draw_losses({name: read_losses(run) for name, run in result.runs.items()}, folder / "loss.png")
    draw_bars(result.evaluation.means, folder / "scores.png")
    draw_lists(result.examples.queries, result.examples.lists, folder / "lists.png")
    draw_groups(_sample_groups(result), ["no jitter", *LEVELS], folder / "groups.png")
    write_text(folder / "index.html", render_page(result, seconds))
    return folder / "index.html"


def verdict(result: DemoResult) -> str:
    """Compare each trained descriptor with its untrained network, SIFT and RootSIFT, one sentence each."""
    means = {str(row["descriptor"]): float(row["mAP"]) for row in result.evaluation.means}
    sentences = []
    for name in training.RECIPES:
        leads = {baseline: means[name] - means[baseline] for baseline in ("SIFT", "RootSIFT")}
        comparisons = ", ".join(
            f"{abs(lead):.1f} {'above' if lead >= 0 else 'below'} {baseline}" for baseline, lead in leads.items()
        )
        sentences.append(
            f"{name}: {means[f'{name} untrained']:.1f} untrained, {means[name]:.1f} mAP after training by AP, "
            f"{comparisons}."
        )
    return " ".join(sentences)


def render_page(result: DemoResult, seconds: float) -> str:
    """Render the page as HTML."""
    real, binary = training.RECIPES.values()
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(TEMPLATE).render(
        result=result,
        verdict=verdict(result),
        seconds=seconds,
        version=__version__,
        torch_version=torch.__version__,
        threads=torch.get_num_threads(),
        recipes=list(training.RECIPES),
        ours={*training.RECIPES, *result.shipped},
        real=real,
        binary=binary,
        test_photos=[path.stem for path in photos.TEST],
        train_photos=[path.stem for path in photos.TRAIN],
        copies=evaluation.COPIES,
        keypoints=evaluation.KEYPOINTS,
        correspondences=np.mean([correspondence_matrix(pair).any(1).sum() for pair in result.pairs]),
        overlaps=", ".join(f"{level} {measure_overlap(level):.2f}" for level in LEVELS),
        weights=shlex.quote(str(next(iter(result.runs.values())) / "weights.safetensors")),
    )


def _sample_groups(result: DemoResult, count: int = 6) -> NDArray[np.uint8]:
    """Return the patches of some groups, evenly spread over the training set, (count, patches, S, S)."""
    patches, starts = result.patches, result.patches.members_start
    groups = np.linspace(0, len(starts) - 2, count).astype(int)
    members = np.stack([patches.members[starts[group] : starts[group + 1]] for group in groups])
    return patches.take(members.ravel()).reshape(*members.shape, patches.size, patches.size)
