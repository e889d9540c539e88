"""The process of a training: `python -m doap.app.learn.worker FOLDER`.

The folder holds job.json and the photos. Events go to the standard output, see `events`. The process ends, and removes
the folder, when its standard input is closed: the page was stopped, or died.
"""

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from doap.app.learn.events import (
    BASELINE_NAME,
    AnyEvent,
    Data,
    Done,
    Failure,
    Loss,
    Queries,
    Ranks,
    Stage,
    Validation,
    encode_event,
)
from doap.app.learn.jobs import JOB, RESULT, Job
from doap.app.learn.photos import Photo, PhotoSplit, split_photos
from doap.app.learn.plan import NAMES, RECIPES, VIEWS_PER_GROUP, plan_training
from doap.app.learn.query import SHOWN, FixedQueries, choose_queries
from doap.app.rank.list_html import encode, format_distance
from doap.app.rank.ranking import RankedList
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.demo.training import EXTENT, untrained_descriptor
from doap.errors import DoapError
from doap.images.reading import read_grey
from doap.networks.card import card_path
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.training.data_cache import DataCache
from doap.training.log import Status
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import BEST, DataSpec
from doap.training.trainer import train
from doap.training.validation import CommonValidation

BASELINE = "rootsift"
VAL_GROUPS = 200

Send = Callable[[AnyEvent], None]


class TimeUpError(Exception):
    """The time of the training is over."""


def main() -> None:
    """Run the job of the folder on the command line."""
    folder = Path(sys.argv[1])
    events, sys.stdout = sys.stdout, sys.stderr  # libraries print
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()

    def send(event: AnyEvent) -> None:
        print(encode_event(event), file=events, flush=True)

    try:
        run_job(folder, Job.model_validate_json((folder / JOB).read_bytes()), send)
    except DoapError as error:
        send(Failure(str(error)))
    except MemoryError:
        send(Failure("not enough memory; use fewer or smaller photos"))
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def run_job(folder: Path, job: Job, send: Send) -> None:
    """Train on the photos of a folder and send events; the best weights and their card are left in `RESULT`."""
    torch.set_num_threads(job.threads)
    recipe, name = RECIPES[job.kind], NAMES[job.kind]
    send(Stage("measuring the speed of this machine", 0))
    plan = plan_training(recipe, job.seconds)
    images = [(photo.name, read_grey(folder / photo.file)) for photo in job.photos]
    split = split_photos(
        images, plan.keypoints(len(images)), progress=lambda done, n: send(Stage("finding keypoints", done / n))
    )
    data, val = cut_sets(folder, split, send)
    recipe = recipe.model_copy(update={"epochs": plan.epochs(len(data) // VIEWS_PER_GROUP)})
    send(Data(len(split.train), len(split.val), split.left_out, len(data), recipe.epochs))
    report = Report(name, recipe, data, val, send)
    deadline = time.monotonic() + job.limit
    is_cut = False
    try:
        source = DataSpec([f"{len(split.train)} own photos"])
        train(
            recipe,
            data,
            folder / "run",
            name,
            source,
            validation=val,
            progress=lambda status: report.step(status, deadline),
            on_epoch=report.epoch,
        )
    except TimeUpError:
        is_cut = True
    if not report.best_epoch:
        raise DoapError(f"no epoch was finished in {job.limit:g} seconds; use fewer photos or a faster machine")
    _keep_best(folder, name)
    send(Done(report.best_epoch, report.best, is_cut))


class Report:
    """Sends losses, validation AP and ranked lists while a model is trained."""

    def __init__(self, name: str, recipe: Recipe, data: PatchSet, val: PatchSet, send: Send) -> None:
        self._name, self._send, self._epochs = name, send, recipe.epochs
        self._ap: float | None = None
        self.best, self.best_epoch = 0.0, 0
        validation = CommonValidation(val, recipe, "cpu", DataCache())
        untrained, baseline = untrained_descriptor(name, recipe, data), load(BASELINE)
        self._queries = choose_queries(val, untrained)
        send(Queries(list(map(encode, self._queries.queries))))
        for shown, model in ((BASELINE_NAME, baseline), (name, untrained)):
            self._rank(shown, 0, model)
            send(Validation(shown, 0, validation.average_precision(model)))

    def step(self, status: Status, deadline: float) -> None:
        """Send the loss of a step.

        Raises:
            TimeUpError: After the deadline.
        """
        if status.preparation:
            return
        self._ap = status.ap
        self._send(Loss(status.done * self._epochs, status.loss))
        if time.monotonic() > deadline:
            raise TimeUpError

    def epoch(self, epoch: int, model: Descriptor) -> None:
        """Send the validation AP and the list of the query after an epoch."""
        assert self._ap is not None
        if self._ap > self.best:
            self.best, self.best_epoch = self._ap, epoch + 1
        self._send(Validation(self._name, epoch + 1, self._ap))
        self._rank(self._name, epoch + 1, model)

    def _rank(self, name: str, epoch: int, model: Descriptor) -> None:
        for number, ranked in enumerate(self._queries.rank(model)):
            self._send(_ranks(number, ranked, self._queries, name, epoch))


def cut_sets(folder: Path, split: PhotoSplit, send: Send) -> tuple[PatchSet, PatchSet]:
    """Cut the patches of the training and of the validation photos into patch sets."""
    limit = -(-VAL_GROUPS // len(split.val))
    return _cut_set(folder / "train", split.train, None, send), _cut_set(folder / "val", split.val, limit, send)


def _cut_set(path: Path, photos: Sequence[Photo], limit: int | None, send: Send) -> PatchSet:
    frames = iter([photo.frames[:limit] for photo in photos])
    frame_set = frame_set_from_photos([(photo.name, photo.image) for photo in photos], lambda _: next(frames), EXTENT)
    cut_patches(frame_set, path, progress=lambda done, n: send(Stage("cutting patches and jittered views", done / n)))
    return PatchSet.open(path)


def _ranks(number: int, ranked: RankedList, queries: FixedQueries, name: str, epoch: int) -> Ranks:
    assert ranked.first_correct is not None
    assert ranked.average_precision is not None
    assert ranked.correct is not None
    shown = range(min(SHOWN, len(ranked)))
    return Ranks(
        number,
        name,
        epoch,
        ranked.first_correct,
        len(ranked),
        ranked.average_precision,
        [bool(ranked.correct[position]) for position in shown],
        [format_distance(ranked, position) for position in shown],
        [encode(queries.patches[ranked.items[position]]) for position in shown],
    )


def _keep_best(folder: Path, name: str) -> None:
    """Copy the best weights and their card."""
    target = folder / RESULT / f"{name}.safetensors"
    target.parent.mkdir()
    best = folder / "run" / BEST
    shutil.copyfile(best, target)
    shutil.copyfile(card_path(best), card_path(target))


def _end_with_parent(folder: Path) -> None:
    sys.stdin.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
