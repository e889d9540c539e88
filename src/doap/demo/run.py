"""The whole demo, step by step."""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Collection, Mapping, MutableMapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

import torch

from doap.datasets.sets.patch_set import PatchSet
from doap.demo import evaluation, training
from doap.demo.evaluation import Evaluation, RankedExamples
from doap.demo.stereo import StereoMatches, match_stereo_pair
from doap.errors import DoapError
from doap.evaluation.image_pairs.scoring import ImagePair
from doap.features import ModelDescriber
from doap.files import write_text
from doap.networks.card import Origin
from doap.networks.registry import list_models, load, save
from doap.parallel.worker import end_with_parent

STEREO_PICTURE = "matches.png"
PATCHES = "patches"
DESCRIPTORS = "descriptors"
PAGE = ("index.html", "loss.png", "scores.png", "lists.png", "groups.png")  # what `write_page` writes
MARK = ".doap-demo"  # file in the folder of a demo: what is in it may be replaced by the next
WORKERS = 2


@dataclass(frozen=True)
class DemoResult:
    """Everything that the page shows.

    Attributes:
        stereo: Matches of the stereo pair.
        patches: Training set.
        runs: Run folder of each trained descriptor, by name.
        shipped: Names of the shipped models that were evaluated.
        pairs: Test photos with their copies.
        evaluation: Scores of all descriptors.
        examples: Ranked lists before and after training.
    """

    stereo: StereoMatches
    patches: PatchSet
    runs: dict[str, Path]
    shipped: list[str]
    pairs: list[ImagePair]
    evaluation: Evaluation
    examples: RankedExamples


def run_demo(
    folder: Path, on_step: Callable[[str], None], update: Callable[[float, str], None] = lambda _done, _text: None
) -> DemoResult:
    """Run the demo in a folder, and replace the output of an earlier demo.

    Args:
        folder: Folder for pictures, runs and descriptors.
        on_step: Callback, called as on_step(step) when a step starts.
        update: Callback, called as update(done, text) with the finished fraction of the step.

    Raises:
        DoapError: If the folder holds files with the names of the output that no demo wrote.
    """
    runs = {name: folder / name for name in training.RECIPES}
    _prepare_folder(folder, [PATCHES, DESCRIPTORS, *runs])

    on_step("matching an image pair")
    stereo = match_stereo_pair(folder / STEREO_PICTURE)
    on_step(f"{stereo.summary}: {folder / STEREO_PICTURE}")

    on_step("cutting patches from photos")
    patches = training.cut_training_patches(folder / PATCHES, lambda done, total: update(done / total, ""))

    on_step(f"training {' and '.join(training.RECIPES)}")
    shipped = [name for name in evaluation.SHIPPED if name in list_models()]
    pairs, references = train_and_evaluate_references(folder, runs, shipped, update)

    on_step("matching photos that were not trained on")
    trained = {name: load(run / "weights.safetensors", fast=False) for name, run in runs.items()}
    models = [ModelDescriber(model) for model in trained.values()]
    scores = evaluation.evaluate_models(pairs, models, lambda _step, done, total: update(done / (total or 1), ""))
    for name, model in trained.items():
        save(model, runs[name] / "weights.safetensors", training.RECIPES[name].architecture, _origin(name, scores))
    name, recipe = next(iter(training.RECIPES.items()))
    before = training.untrained_descriptor(name, recipe, patches)
    examples = evaluation.rank_examples(pairs[0], {"before": before, "after": trained[name]})
    return DemoResult(stereo, patches, runs, shipped, pairs, scores + references, examples)


def _prepare_folder(folder: Path, folders: Collection[str]) -> None:
    """Remove the output of an earlier demo, and mark the folder as that of a demo."""
    others = [name for name in (*folders, STEREO_PICTURE, *PAGE) if os.path.lexists(folder / name)]
    if others and not (folder / MARK).is_file():
        raise DoapError(f"{folder / others[0]}: exists, and no demo is known to have made it; choose another output")
    for name in folders:
        shutil.rmtree(folder / name, ignore_errors=True)
    write_text(folder / MARK, "The folder of a demo of doap; the next demo replaces its output.\n")


def train_and_evaluate_references(
    folder: Path, runs: Mapping[str, Path], shipped: list[str], update: Callable[[float, str], None]
) -> tuple[list[ImagePair], Evaluation]:
    """Train all of `RECIPES` and evaluate the references concurrently, in two processes with one thread each.

    A network this small gains little from a second thread, and is slowed down by other programs on that core.
    """
    context = multiprocessing.get_context("spawn")
    patches = folder / PATCHES
    longest_first = sorted(training.RECIPES.items(), key=lambda item: -item[1].epochs)
    manager = SyncManager(ctx=context)
    manager.start(end_with_parent)
    with manager, ProcessPoolExecutor(WORKERS, context, initializer=_start_worker) as pool:
        losses: MutableMapping[str, tuple[float, float]] = manager.dict()
        trainings = [
            pool.submit(training.train_descriptor, name, recipe, patches, runs[name], losses)
            for name, recipe in longest_first
        ]
        pairs = evaluation.make_test_pairs()
        references = pool.submit(
            evaluation.evaluate_references, pairs, training.RECIPES, patches, shipped, folder / DESCRIPTORS
        )
        futures: list[Future[Any]] = [*trainings, references]
        while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done:
            if any(future.done() and future.exception() for future in futures):
                break
            reports = list(losses.values())
            update(sum(done for done, _ in reports) / len(runs), ", ".join(f"loss {loss:.3f}" for _, loss in reports))
        for future in trainings:
            future.result()
        return pairs, references.result()


def _start_worker() -> None:
    end_with_parent()
    torch.set_num_threads(1)


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
            "limits": "a demonstration: a small network, trained for about a minute on fifteen images",
        },
    )
