"""The record of a run: log.csv (a line a step), validation.csv (a line an epoch), and both for TensorBoard.

On a GPU a loss is known only when the GPU is done with it, and asking makes both wait. So losses are asked
for in bunches; until then they are tensors.
"""

import csv
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from doap.files import write_text

STEPS = "log.csv"
EPOCHS = "validation.csv"
STEP_COLUMNS = ("epoch", "batch", "loss", "lr")
EPOCH_COLUMNS = ("epoch", "ap")


@dataclass(frozen=True)
class Status:
    """How far a training is.

    Attributes:
        done: the share that is done, in [0, 1].
        loss: of the last step that is known.
        ap: exact AP at the last validation, or None before the first.
        speed: patches a second since the last report.
        doing: what is done before the training begins, of which `done` is then the share; else empty.
    """

    done: float
    loss: float = math.nan
    ap: float | None = None
    speed: float = math.nan
    doing: str = ""


class NotFiniteError(Exception):
    """A loss, or the weights after a step, stopped being numbers."""

    def __init__(self, epoch: int, batch: int, what: str) -> None:
        super().__init__(epoch, batch, what)
        self.epoch = epoch
        self.batch = batch
        self.what = what


@dataclass(frozen=True)
class _Step:
    epoch: int
    batch: int
    rate: float
    loss: Tensor
    patches: int


class Log:
    """Writes the record, cut back to the checkpoint that training goes on from.

    Args:
        run: folder of the run.
        epoch: where training goes on.
        batch: likewise, batches of that epoch that are done.
    """

    def __init__(self, run: Path, epoch: int, batch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds to import, and only trainings need it

        steps = [row for row in _read(run / STEPS, STEP_COLUMNS) if (int(row[0]), int(row[1])) < (epoch, batch)]
        epochs = [row for row in _read(run / EPOCHS, EPOCH_COLUMNS) if int(row[0]) < epoch]
        _rewrite(run / STEPS, STEP_COLUMNS, steps)
        _rewrite(run / EPOCHS, EPOCH_COLUMNS, epochs)
        self._steps, self._epochs = (run / STEPS).open("a", newline=""), (run / EPOCHS).open("a", newline="")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=len(steps))
        self._written = len(steps)
        self._waiting: list[_Step] = []
        self._asked = time.monotonic()
        self.loss = float(steps[-1][2]) if steps else math.nan
        self.ap = float(epochs[-1][1]) if epochs else None
        self.speed = math.nan

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.close()
        self._epochs.close()
        self._board.close()

    def __len__(self) -> int:
        """How many steps wait to be asked for."""
        return len(self._waiting)

    def step(self, epoch: int, batch: int, rate: float, loss: Tensor, patches: int) -> None:
        """Remember a step; `loss` may still be under way."""
        self._waiting.append(_Step(epoch, batch, rate, loss, patches))

    def ask(self, weights: list[Tensor]) -> None:
        """Wait for the losses of all remembered steps and write them.

        Args:
            weights: of the network as they are now; they must be finite too.

        Raises:
            NotFiniteError: at the first step whose loss is not a number, or at the last if the weights are not.
        """
        if not self._waiting:
            return
        total = torch.stack([weight.sum() for weight in weights]).sum()
        *losses, total_value = torch.stack([*(step.loss.float() for step in self._waiting), total.float()]).tolist()
        for step, loss in zip(self._waiting, losses, strict=True):
            if not math.isfinite(loss):
                raise NotFiniteError(step.epoch, step.batch, f"the loss is {loss}")
            self._steps.write(f"{step.epoch},{step.batch},{loss:.6f},{step.rate:.6g}\n")
            self._board.add_scalar("loss", loss, self._written)
            self._board.add_scalar("lr", step.rate, self._written)
            self._written += 1
        last = self._waiting[-1]
        if not math.isfinite(total_value):
            raise NotFiniteError(last.epoch, last.batch, "the weights are no numbers")
        now = time.monotonic()
        self.loss = losses[-1]
        self.speed = sum(step.patches for step in self._waiting) / max(now - self._asked, 1e-9)
        self._board.add_scalar("patches per second", self.speed, self._written)
        self._waiting.clear()
        self._asked = now

    def validated(self, epoch: int, ap: float) -> None:
        """Write the AP after an epoch."""
        self.ap = ap
        self._epochs.write(f"{epoch},{ap:.6f}\n")
        self._board.add_scalar("held-out AP", ap, self._written)

    def flush(self) -> None:
        """Put all that is written on the disk."""
        self._steps.flush()
        self._epochs.flush()
        self._board.flush()

    def restart_clock(self) -> None:
        """Leave out of the speed what was no training, such as validating."""
        self._asked = time.monotonic()


def read_losses(run: Path) -> list[float]:
    """The loss of every step of a run."""
    return [float(row[2]) for row in _read(run / STEPS, STEP_COLUMNS)]


def read_times(run: Path) -> list[float]:
    """When each step of a run ended, in epochs."""
    places = [(int(row[0]), int(row[1])) for row in _read(run / STEPS, STEP_COLUMNS)]
    batches = {epoch: batch + 1 for epoch, batch in places}  # the last of an epoch stays
    return [epoch + (batch + 1) / batches[epoch] for epoch, batch in places]


def read_validation(run: Path) -> list[tuple[int, float]]:
    """Epochs of a run that were validated, and the held-out AP after each."""
    return [(int(row[0]), float(row[1])) for row in _read(run / EPOCHS, EPOCH_COLUMNS)]


def _read(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The whole rows of a table; a process that was killed may leave half of one at the end."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.reader(whole.splitlines()) if len(row) == len(columns)][1:]


def _rewrite(path: Path, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    write_text(path, "".join(",".join(row) + "\n" for row in [list(columns), *rows]))
