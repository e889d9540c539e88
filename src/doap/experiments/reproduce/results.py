"""Results of the targets, once their trainings are finished: evaluations, tables and figures.

The folder `results` holds one JSON file per benchmark or sweep and one picture per figure, which a report shows.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from doap.datasets.batches.resident_patches import to_device
from doap.datasets.label_mining.figure import draw_clusters
from doap.datasets.label_mining.mining import mine_labels
from doap.datasets.label_mining.settings import MiningSettings
from doap.datasets.official.fingerprint import fingerprint_folder
from doap.datasets.official.hpatches_tasks import find_split
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.training_set import open_training_set
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.alignment.benchmark import Agreement, Alignment, align
from doap.evaluation.alignment.figure import draw_alignment
from doap.evaluation.harness.benchmark import Benchmark
from doap.evaluation.harness.methods import Method, open_methods
from doap.evaluation.harness.result import Result, Score, read_result
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.hpatches.tables import HEADLINES, mean_score
from doap.evaluation.image_pairs.oxford import PAPER_EXTENT, Oxford
from doap.evaluation.phototour.benchmark import Phototour
from doap.evaluation.phototour.pair_test import find_scenes
from doap.evaluation.romepatches.benchmark import RomePatches
from doap.experiments.reproduce.data import SPLIT
from doap.experiments.reproduce.patches_figure import draw_patches
from doap.experiments.reproduce.plan import QUICK_CLUSTERS, Plan, PlannedSweep
from doap.experiments.reproduce.targets import MINING_SEQUENCES, Target, binary_name
from doap.experiments.series import Series, shared_split
from doap.experiments.sweep import run_sweep
from doap.experiments.sweep_figure import draw_rows
from doap.experiments.sweep_metrics import make_evaluator
from doap.files import atomic_file
from doap.networks.card import read_card
from doap.networks.conversion import binarise
from doap.networks.registry import load
from doap.training.run_folder import DataSpec, is_complete
from doap.types import StepProgress, no_step_progress

ALIGNMENT_GROUPS = 5
RULE = (
    "mean correlation, in percent, of the pixels of two patches, of one group and of different groups; mAP is the "
    "tie-aware mean over levels of noise and, for retrieval, over pools"
)
OXFORD_DETECTOR = "vlfeat-harris-affine"  # upright
QUICK_KEYPOINTS = 200
FINGERPRINT = "fingerprint"  # setting of a result


class FailedTrainingsError(DoapError):
    """A target cannot be evaluated, because its trainings have failed."""


@dataclass(frozen=True)
class ResultWriter:
    """Evaluates the targets of a plan and writes their results.

    Attributes:
        plan: The plan, whose trainings are finished.
        folder: Folder of the results.
        binarised: Folder of binarised models.
        progress: Callback, called as `progress(step, done, total)`.
    """

    plan: Plan
    folder: Path
    binarised: Path
    progress: StepProgress = no_step_progress

    def write(self, target: Target) -> None:
        """Evaluate one target and write its files.

        Raises:
            FailedTrainingsError: If too many of its trainings have failed.
            DoapError: If its data cannot be read.
        """
        writers: dict[str, Callable[[Target], None]] = {
            "figure-patches": self._write_patches,
            "table-1": self._write_table_1,
            "figure-batch-size": self._write_batch_sizes,
            "figure-hpatches": self._write_hpatches,
            "table-2": self._write_table_2,
            "figure-oxford": self._write_oxford,
            "figure-alignment": self._write_alignment,
            "figure-mining": self._write_mining,
        }
        writers[target.name](target)

    def _write_table_1(self, target: Target) -> None:
        folder = self.plan.data.folder
        self._evaluate("phototour", Phototour(folder), list(find_scenes(folder).values()), self._methods(target))

    def _write_table_2(self, target: Target) -> None:
        benchmark = RomePatches(self.plan.data.path("romepatches"), self.plan.device)
        self._evaluate("romepatches", benchmark, [benchmark.data], self._methods(target))

    def _write_hpatches(self, target: Target) -> None:
        benchmark = HPatches(self.plan.data.path("hpatches"), SPLIT, device=self.plan.device)
        self._evaluate("hpatches", benchmark, [benchmark.data], self._methods(target))

    def _write_oxford(self, target: Target) -> None:
        benchmark = Oxford(
            self.plan.data.path("oxford"),
            OXFORD_DETECTOR,
            keypoints=QUICK_KEYPOINTS if self.plan.is_quick else None,
            protocol="vlbenchmarks",
        )
        methods = self._methods(target, PAPER_EXTENT, OXFORD_DETECTOR)
        self._evaluate("oxford", benchmark, [benchmark.data], methods)

    def _write_batch_sizes(self, target: Target) -> None:
        for planned in (planned for planned in self.plan.sweeps if planned.sizes in target.sweeps):
            self._write_sweep(planned)

    def _write_patches(self, target: Target) -> None:
        sets = {
            _title(name): open_dataset(self.plan.data.path(name), partial(self.progress, f"converting {name}"))
            for name in target.datasets
        }
        draw_patches(sets, self.folder / "patches.png")

    def _write_alignment(self, target: Target) -> None:
        replicate, zeros = (self._weights(training.name) for training in target.trainings)
        if not replicate or not zeros:
            raise FailedTrainingsError(f"{target.name}: needs two trainings, of which one or both have failed")
        model, zeros_model = (load(path, self.plan.device, fast=False) for path in (replicate, zeros))
        folder = self.plan.data.path("hpatches")
        patches = open_dataset(folder, sequences=find_split(folder, SPLIT).test)
        alignment = align(model, patches, progress=self.progress, zeros_model=zeros_model)
        draw_alignment(alignment, self.folder / "alignment.png", ALIGNMENT_GROUPS)
        benchmark = HPatches(folder, SPLIT, ("matching", "retrieval"), device=self.plan.device)
        measured = benchmark.evaluate(open_methods([str(replicate), str(zeros)], self.plan.device), self.progress)
        alignment_result(alignment, measured).write_json(self.folder / "alignment.json")

    def _write_mining(self, target: Target) -> None:
        patches = open_training_set([self.plan.data.path("hpatches")], SPLIT)
        assert isinstance(patches, PatchSet)

        def take(indices: Ids) -> Tensor:
            return to_device(patches.take(indices), torch.device(self.plan.device))

        settings = MiningSettings(QUICK_CLUSTERS) if self.plan.is_quick else MiningSettings()
        mined = mine_labels(patches, take, settings, partial(self.progress, "mining labels"))
        shown = [name for name in MINING_SEQUENCES if name in patches.sequence_names]
        present = [self.plan.data.path(name) for name in target.optional if not self.plan.data.missing([name])]
        images = present[0] if present else None
        draw_clusters(mined, patches, take, self.folder / "label-mining.png", shown, images)

    def _write_sweep(self, planned: PlannedSweep) -> None:
        """Evaluate the runs of a sweep, which are trained already or have failed, and draw it."""
        sizes, data, name = planned.sizes, self.plan.data, planned.folder.name
        trained = {run: recipe for run, recipe in planned.sweep.recipes.items() if is_complete(planned.folder / run)}
        if not trained:
            raise FailedTrainingsError(f"{name}: all of its trainings have failed")
        folder, tests = data.path(sizes.dataset), [data.path(name) for name in sizes.tests]
        split = shared_split(trained.values())
        evaluate, metric = make_evaluator(tests, sizes.metric, split, self.plan.device, self.progress)
        source = DataSpec([str(folder.absolute())])
        series = Series(open_training_set([folder], split), planned.folder, source, self.plan.device)
        record = {
            "recipe": sizes.recipe,
            "settings": list(self.plan.settings),
            "tests": list(map(str, tests)),
            "fingerprints": [fingerprint_folder(test) for test in tests],
            "metric": metric.record(),
            "split": split,
        }
        rows = run_sweep(replace(planned.sweep, recipes=trained), series, evaluate, record)
        draw_rows(planned.sweep.key, rows, metric, f"{sizes.recipe}, {sizes.dataset}", self.folder / f"{name}.png")
        with atomic_file(self.folder / f"{name}.json") as temporary:
            shutil.copyfile(planned.folder / "sweep.json", temporary)

    def _methods(self, target: Target, extent: float | None = None, detector: str = "") -> list[Method]:
        """Open the baselines, the finished trainings and the binarised models of a target."""
        weights = [path for training in target.trainings if (path := self._weights(training.name))]
        if target.trainings and not weights:
            raise FailedTrainingsError(f"{target.name}: all of its trainings have failed")
        bits = [self._binarise(name, path) for name in target.binarised if (path := self._weights(name))]
        specs = [*filter(_is_available, target.baselines), *map(str, (*weights, *bits))]
        return open_methods(specs, self.plan.device, extent, detector=detector)

    def _weights(self, name: str) -> Path | None:
        """Return the weights of a training; None if it has failed."""
        (job,) = (job for job in self.plan.jobs if job.training.name == name)
        return job.weights if is_complete(job.run) else None

    def _binarise(self, name: str, weights: Path) -> Path:
        """Return the binarised copy of a model; it is made again if the weights have changed."""
        output = self.binarised / f"{binary_name(name)}.safetensors"
        if not _is_made_from(output, read_card(weights).sha256):
            for file in (output, output.with_suffix(".json")):
                file.unlink(missing_ok=True)
            binarise(weights, output, binary_name(name))
        return output

    def _evaluate(self, name: str, benchmark: Benchmark, folders: Sequence[Path], methods: Sequence[Method]) -> None:
        """Evaluate methods and write NAME.json, unless it holds the result of the same methods on the same data."""
        file = self.folder / f"{name}.json"
        fingerprint = _fingerprint(benchmark, folders)
        if not _holds(file, benchmark.name, [method.key for method in methods], fingerprint):
            result = benchmark.evaluate(methods, self.progress)
            settings = {**result.settings, FINGERPRINT: fingerprint}
            result.model_copy(update={"settings": settings}).write_json(file)


def alignment_result(alignment: Alignment, measured: Result) -> Result:
    """Return the agreement of patches before and after alignment, and the mAP of both models.

    Args:
        alignment: Alignment by the model trained with repeated borders and the one trained with zeros.
        measured: HPatches result of both models, in this order.
    """
    rows: list[Score] = [_agreement("original patches", alignment.before)]
    for method, agreement in zip(measured.methods, (alignment.after, alignment.after_zeros), strict=True):
        name = str(method["name"])
        own = {"descriptor": name, "rule": "tie-aware"}
        means = {f"{task} mAP %": mean_score(measured, own, HEADLINES[task]) for task in ("matching", "retrieval")}
        rows.append({**_agreement(name, agreement), **means})
    return Result(
        benchmark="alignment",
        settings={"data": measured.settings["data"], "split": SPLIT, "groups": len(alignment.groups), "rule": RULE},
        methods=measured.methods,
        scores=rows,
    )


def _fingerprint(benchmark: Benchmark, folders: Sequence[Path]) -> dict[str, str]:
    """Return what the scores of a benchmark depend on besides the methods: its data sets, by name, and options."""
    options = {name: value for name, value in vars(benchmark).items() if name not in ("data", "device")}
    return {**{folder.name: fingerprint_folder(folder) for folder in folders}, "options": repr(options)}


def _holds(file: Path, benchmark: str, keys: Sequence[str], fingerprint: dict[str, str]) -> bool:
    """Return whether a file is the result of a benchmark for the methods with these keys, on the same data."""
    try:
        result = read_result(file)
    except DoapError:  # missing, or damaged: it is measured again
        return False
    recorded = result.settings.get(FINGERPRINT, fingerprint)  # earlier versions did not record it
    is_same_data = recorded == fingerprint
    return is_same_data and result.benchmark == benchmark and [method.get("key") for method in result.methods] == keys


def _is_made_from(model: Path, sha256: str) -> bool:
    """Return whether a converted model was made from the weights with a hash."""
    try:
        return model.exists() and sha256 in json.dumps(read_card(model).origin.model_dump())
    except DoapError:  # its card is missing or damaged: the model is made again
        return False


def _agreement(name: str, agreement: Agreement) -> Score:
    return {
        "descriptor": name,
        "within a group %": 100 * agreement.within,
        "between groups %": 100 * agreement.between,
    }


def _is_available(baseline: str) -> bool:
    try:
        load(baseline, fast=False)
    except DoapError:  # a library without it; the report names the methods that were measured
        return False
    return True


def _title(dataset: str) -> str:
    names = {"romepatches": "RomePatches", "hpatches": "HPatches"}
    return names.get(dataset, f"UBC Phototour, {dataset.removeprefix('phototour-')}")
