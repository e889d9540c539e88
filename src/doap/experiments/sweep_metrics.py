"""What the runs of a sweep are measured by: a headline of a benchmark, or AP on validation scenes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from doap.datasets.official.opening import recognise
from doap.datasets.official.romepatches import HALVES
from doap.errors import DoapError, check_choice
from doap.evaluation.harness.benchmark import Benchmark
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Method, PatchExtractor
from doap.evaluation.harness.result import Result
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.hpatches.tables import HEADLINES, mean_score
from doap.evaluation.hpatches.task_data import open_tasks
from doap.evaluation.phototour.benchmark import Phototour
from doap.evaluation.phototour.pair_test import open_test, scene_of
from doap.evaluation.romepatches.benchmark import RomePatches, open_halves
from doap.experiments.series import Evaluator
from doap.networks.descriptor import Descriptor
from doap.training.run_folder import WEIGHTS
from doap.types import StepProgress, no_step_progress

TRAIN_HALF, TEST_HALF = HALVES


@dataclass(frozen=True)
class Metric:
    """A metric of sweeps.

    Attributes:
        name: Name on the command line.
        column: Column of the rows that holds it, or its mean over several tests.
        label: Name with its unit, for axes and tables.
        better: Whether less or more is better.
        factor: Factor from the column to the unit of the label.
    """

    name: str
    column: str
    label: str
    better: Literal["less", "more"] = "more"
    factor: float = 1

    def format(self, row: Mapping[str, Any]) -> str:
        """Return the metric of a row as text.

        Example:
            >>> Metric("fpr95", "fpr95", "FPR95 %", "less").format({"batch_size": 256, "fpr95": 1.5})
            'FPR95 1.50 %'
        """
        return f"{self.label.removesuffix(' %')} {self.factor * row[self.column]:.2f} %"

    def record(self) -> dict[str, Any]:
        """Return the entry of sweep.json."""
        return asdict(self)


VALIDATION_AP = Metric("validation-ap", "ap", "AP on validation scenes %", factor=100)

BENCHMARK_METRICS: dict[str, tuple[Metric, ...]] = {
    "phototour": (Metric("fpr95", "fpr95", "FPR95 %", "less"),),
    "hpatches": tuple(Metric(task, task, f"HPatches {task} mAP %") for task in HEADLINES),
    "romepatches": (Metric("map", "map", "RomePatches mAP %"),),
}
"""Metrics by the layout of a test folder."""

METRICS = {
    metric.name: metric
    for metric in (*(metric for metrics in BENCHMARK_METRICS.values() for metric in metrics), VALIDATION_AP)
}
"""All metrics by name."""


def choose_metric(tests: Sequence[Path], metric: str | None = None) -> Metric:
    """Return the metric of a sweep; reads nothing but the names of files.

    Args:
        tests: Official folders of one benchmark, recognised by their layout; none for validation scenes.
        metric: Name of the metric; by default the only one of the benchmark.

    Raises:
        DoapError: If there is no such metric, a folder is none of a benchmark, the folders are of several benchmarks or
            have the same name, or the benchmark has several metrics and none was named.
    """
    if metric is not None:
        check_choice("--metric", metric, METRICS)
    if not tests:
        if metric not in (None, VALIDATION_AP.name):
            raise DoapError(f"--metric {metric}: needs --test, an official folder to evaluate on")
        return VALIDATION_AP
    layouts = {_recognise(test) for test in tests}
    if len(layouts) > 1:
        raise DoapError(f"--test: folders of {' and '.join(sorted(layouts))} have no metric in common; give one kind")
    names = [test.absolute().name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"--test: two folders are called {name}; give each once, under its own name")
    layout = layouts.pop()
    offered = {choice.name: choice for choice in BENCHMARK_METRICS[layout]}
    if metric is None and len(offered) == 1:
        return next(iter(offered.values()))
    if metric not in offered:
        given = f"--metric {metric}: not of {layout}" if metric else f"{layout} has several metrics"
        raise DoapError(f"{given}; give --metric {' or '.join(offered)}")
    return offered[metric]


def _recognise(test: Path) -> str:
    try:
        return recognise(test).name
    except DoapError:
        raise DoapError(f"--test {test}: not an official folder of Phototour, HPatches or RomePatches") from None


def check_disjoint(training: Path, tests: Sequence[Path], split: str | None) -> None:
    """Check that the data of a training is not tested on, as far as the folders tell.

    Args:
        training: Folder of the training set.
        tests: Folders of the tests.
        split: Split whose training part is trained on; None trains on all of the folder.

    Raises:
        DoapError: If a test would measure what was trained on.
    """
    for test in tests:
        scene = scene_of(test.absolute().name)
        if scene and scene == scene_of(training.absolute().name):
            raise DoapError(f"--test {test}: {scene} is trained on; give another scene")
        if split is None and test.resolve() == training.resolve():
            raise DoapError(f"--test {test}: all of it is trained on; give --split, or another folder")


def make_evaluator(
    tests: Sequence[Path],
    metric: str | None = None,
    split: str | None = None,
    device: str = "cpu",
    progress: StepProgress = no_step_progress,
) -> tuple[Evaluator, Metric]:
    """Open the tests of a sweep, and return the evaluation of a run on them.

    Args:
        tests: Official folders of one benchmark.
        metric: Name of the metric; by default the only one of the benchmark.
        split: Split that is trained on. HPatches is tested on the test sequences of its splits, or on all sequences
            without a split; RomePatches always on its half "test".
        device: Device of the evaluation.
        progress: Callback, called as `progress(step, done, total)`.

    Returns:
        The evaluator, whose measures are the mean over the tests and the value of each, and the metric.

    Raises:
        DoapError: If a test cannot be read or does not allow the metric.
    """
    chosen = choose_metric(tests, metric)
    benchmarks = {
        test.absolute().name: _open_benchmark(test, chosen, None if split == TRAIN_HALF else split, device, progress)
        for test in tests
    }
    extractor, cache = PatchExtractor(device), DescriptorCache()

    def evaluate(run: Path, model: Descriptor) -> dict[str, float]:
        method = Method(run.name, str(run / WEIGHTS), model, None, extractor, cache)
        values = {
            f"{chosen.column} {name}": round(headline(benchmark.evaluate([method], progress), chosen), 6)
            for name, benchmark in benchmarks.items()
        }
        return {chosen.column: round(sum(values.values()) / len(values), 6), **values}

    return evaluate, chosen


def headline(result: Result, metric: Metric) -> float:
    """Return the metric, in percent, of the result of one method.

    Verification, matching and retrieval are the means of the tables of HPatches by the tie-aware rule.
    """
    if result.benchmark == HPatches.name:
        mean = mean_score(result, {"rule": "tie-aware", **HEADLINES[metric.name]})
        assert mean is not None  # the task was possible when the test was opened
        return mean
    (value,) = [score[metric.column] for score in result.scores if score.get("half", TEST_HALF) == TEST_HALF]
    return float(value)  # type: ignore[arg-type]  # a number in every score


def _open_benchmark(test: Path, metric: Metric, split: str | None, device: str, progress: StepProgress) -> Benchmark:
    """Return the benchmark of a test, once its data has been opened, so that errors show before any training."""
    converting = partial(progress, f"converting {test.name}")
    if metric in BENCHMARK_METRICS["phototour"]:
        open_test(test, converting)
        return Phototour(test)
    if metric in BENCHMARK_METRICS["hpatches"]:
        data = open_tasks(test, split, [metric.name], progress=converting)
        if not data.tasks:
            raise DoapError(f"{test}: {data.left_out[0]}; give another folder or metric")
        return HPatches(test, split, [metric.name], device=device)
    if TEST_HALF not in open_halves(test, converting).sequence_names:
        raise DoapError(f"{test}: has no test half (patch_retrieval_Rome_{TEST_HALF}.mat)")
    return RomePatches(test, device)
