"""The protocol of a benchmark."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from doap.evaluation.harness.methods import Method
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Table
from doap.types import StepProgress, no_step_progress


class Benchmark(Protocol):
    """Data and a metric: describe with each method, return a `Result`.

    A benchmark is a frozen dataclass whose fields are its options. It opens its data in `evaluate`, so that
    constructing one costs nothing. Tables and the figure are made from a result alone, which may have been read from
    a file.

    Attributes:
        name: Name in `doap.evaluation.registry`, on the command line (`doap eval NAME`) and in results.
    """

    name: ClassVar[str]

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Evaluate all methods on the same data.

        Args:
            methods: Methods with different names, from `open_methods`.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If the data cannot be read.
        """

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return the tables of a result, for the terminal and the report."""

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw the figure of a result to a file."""
