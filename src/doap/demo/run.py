"""The whole demo, step by step."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from doap.datasets.sets.patch_set import PatchSet
from doap.demo import evaluation, training
from doap.demo.evaluation import Evaluation, RankedExamples
from doap.demo.stereo import StereoMatches, match_stereo_pair
from doap.networks.card import Origin
from doap.networks.registry import list_models, save
from doap.training.log import Status

STEREO_PICTURE = "matches.png"


@dataclass(frozen=True)
class DemoResult:
    """Everything that the page shows.

    Attributes:
        stereo: Matches of the stereo pair.
        patches: Training set.
        runs: Run folder of each trained descriptor, by name.
        shipped: Names of the shipped models that were evaluated.
        evaluation: Scores of all descriptors.
        examples: Ranked lists before and after training.
    """

    stereo: StereoMatches
    patches: PatchSet
    runs: dict[str, Path]
    shipped: list[str]
    evaluation: Evaluation
    examples: RankedExamples


def run_demo(
    folder: Path, begin: Callable[[str], None], update: Callable[[float, str], None] = lambda _done, _text: None
) -> DemoResult:
    """Run the demo into a folder and replace what an earlier demo left there.

    Args:
        folder: Folder for pictures, runs and descriptors.
        begin: Callback, called as begin(step) when a step begins.
        update: Callback, called as update(done, text) with the finished fraction of the step.
    """
    runs = {name: folder / name for name in training.RECIPES}
    for path in (folder / "patches", folder / "descriptors", *runs.values()):
        shutil.rmtree(path, ignore_errors=True)

    begin("matching an image pair")
    stereo = match_stereo_pair(folder / STEREO_PICTURE)
    begin(f"{stereo.summary}: {folder / STEREO_PICTURE}")

    begin("cutting patches from photos")
    patches = training.cut_training_patches(folder / "patches", lambda done, total: update(done / total, ""))
    untrained = {name: training.untrained_descriptor(name, patches) for name in training.RECIPES}

    def show(status: Status) -> None:
        update(status.done, status.preparation or f"loss {status.loss:.3f}")

    trained = {}
    for name, recipe in training.RECIPES.items():
        begin(f"training {name} ({recipe.kind})")
        trained[name] = training.train_descriptor(name, patches, runs[name], show)

    begin("matching photos that were not trained on")
    shipped = [name for name in evaluation.SHIPPED if name in list_models()]
    scores = evaluation.evaluate_models(
        [*trained.values(), *untrained.values()],
        shipped,
        folder / "descriptors",
        lambda _step, done, total: update(done / (total or 1), ""),
    )
    for name, descriptor in trained.items():
        architecture = training.RECIPES[name].architecture
        save(descriptor, runs[name] / "weights.safetensors", architecture, _origin(name, scores))
    real = next(iter(training.RECIPES))
    before_and_after = {"before": untrained[real], "after": trained[real]}
    examples = evaluation.rank_examples(scores.pairs[0], before_and_after)
    return DemoResult(stereo, patches, runs, shipped, scores, examples)


def _origin(name: str, scores: Evaluation) -> Origin:
    """Return the origin that the card of a trained model states."""
    row = next(row for row in scores.means if row["descriptor"] == name)
    return Origin(
        licence="Apache-2.0",
        data=training.DATA,
        recipe=training.RECIPES[name].model_dump(),
        figures={f"doap demo, {key} %": round(float(row[key]), 1) for key in ("mAP", "correct neighbours")},
        notes={
            "command": "doap demo",
            "frames": "DoG",
            "limits": "a demonstration: a small network, trained for a minute on fifteen images",
        },
    )
