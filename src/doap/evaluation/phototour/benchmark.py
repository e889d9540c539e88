"""Patch verification on UBC Phototour: FPR95 on the 100,000 official pairs of a scene (paper, "UBC Phototour")."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from doap.errors import DoapError
from doap.evaluation.harness.methods import Method
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Table
from doap.evaluation.metrics.average_precision import false_positive_rate_at_recall
from doap.evaluation.metrics.roc import recalls_at, roc, roc_area
from doap.evaluation.phototour.pair_test import (
    PairTest,
    find_scenes,
    folder_scene,
    open_test,
    order_scenes,
    scene_of,
)
from doap.evaluation.phototour.tables import join_scenes, phototour_table
from doap.networks.registry import find_card
from doap.types import StepProgress, no_step_progress

RULE = (
    "FPR95: the threshold is the smallest distance that recalls 95 % of the matching pairs; every non-matching pair at "
    "or below it counts, so ties gain nothing. Euclidean distances in float64; Hamming distances of bits"
)
CURVE_RATES = np.geomspace(1e-4, 1, 81)  # false positive rates of the points of the ROC curve


@dataclass(frozen=True)
class Phototour:
    """FPR95 of every method on every scene that it was not trained on.

    Attributes:
        data: Official folder of a scene, or a folder of several, named after their scenes ("phototour-" in front is
            allowed): models are not tested on scenes that they were trained on.
    """

    name: ClassVar[str] = "phototour"

    data: Path

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Evaluate all methods on the official pairs.

        Args:
            methods: Methods to evaluate.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If the data cannot be read, or every method was trained on the only scene.
        """
        tests = {
            scene: open_test(folder, partial(progress, f"converting {scene}"))
            for scene, folder in find_scenes(self.data).items()
        }
        scores: list[Score] = []
        curves: list[dict[str, Any]] = []
        for scene, test in tests.items():
            for method in methods:
                if scene in trained_on(method):
                    continue
                condition = {"descriptor": method.name, "trained on": join_scenes(trained_on(method)), "test": scene}
                measured, curve = _evaluate_pairs(method, test, partial(progress, f"{method.name} on {scene}"))
                scores.append({**condition, **measured})
                curves.append({**condition, **curve})
        if not scores:
            raise DoapError(f"{self.data}: every model was trained on {', '.join(tests)}; give another test scene")
        return Result(
            benchmark=self.name,
            settings={
                "data": str(self.data),
                "pairs": {scene: len(test.same) for scene, test in tests.items()},
                "rule": RULE,
            },
            methods=[{**method.metadata(), "trained on": join_scenes(trained_on(method))} for method in methods],
            scores=scores,
            curves=curves,
        )

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return Table 1 of the paper, with the measured rows first."""
        return [phototour_table(result)]

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw the ROC curves."""
        from doap.evaluation.phototour.figure import draw_phototour

        draw_phototour(result, path)


def trained_on(method: Method) -> list[str]:
    """Return the scenes that a model was trained on, by its card.

    A card without training sets tells a scene by the folder of its data, and a model by its name, where they can.
    """
    card = find_card(method.spec)
    training_sets = card.origin.training_sets if card else []
    if training_sets:
        names = [name for data in training_sets if data.layout == Phototour.name for name in data.sequences]
        return order_scenes(map(folder_scene, names))
    scene = (scene_of(Path(card.origin.data).name) if card else "") or scene_of(method.model.name)
    return [scene] if scene else []


def _evaluate_pairs(method: Method, test: PairTest, progress: partial[None]) -> tuple[Score, dict[str, list[float]]]:
    """Return FPR95 and the area under the ROC curve, in percent, and points of the curve."""
    distances = test.distances(method.describe_patches(test.selection, progress))
    rates, recalls = roc(distances, test.same)
    rate = false_positive_rate_at_recall(distances, test.same)
    curve = {
        "false positive rate": CURVE_RATES.round(8).tolist(),
        "recall": recalls_at(rates, recalls, CURVE_RATES).round(6).tolist(),
    }
    return {"fpr95": 100 * rate, "auc": 100 * roc_area(rates, recalls)}, curve
