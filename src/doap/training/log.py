"""Log of a run: log.csv (one line per step), validation.csv (one line per epoch), and both for TensorBoard.

Reading a loss from a GPU waits until the GPU has computed it, so losses are kept as tensors and read several steps at
a time.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from doap.errors import DoapError
from doap.files import write_text

STEPS_FILE = "log.csv"
EPOCHS_FILE = "validation.csv"
STEP_COLUMNS = ("epoch", "batch", "loss", "lr")
EPOCH_COLUMNS = ("epoch", "ap")


@dataclass(frozen=True)
class Status:
    """Progress of a training.

    Attributes:
        done: Fraction of the training, in [0, 1]; of the preparation, if `preparation` is set.
        loss: Last known loss.
        ap: Exact AP of the last validation, or None before the first.
        speed: Patches per second since the last status.
        preparation: Preparation under way before the first step, such as "loading the set"; else empty.
    """

    done: float
    loss: float = math.nan
    ap: float | None = None
    speed: float = math.nan
    preparation: str = ""


StatusCallback = Callable[[Status], None]
"""Callback of a training: `callback(status)`."""


class NotFiniteError(Exception):
    """A loss, or the weights after a step, are not finite."""

    def __init__(self, epoch: int, batch: int, message: str) -> None:
        super().__init__(epoch, batch, message)
        self.epoch = epoch
        self.batch = batch
        self.message = message


@dataclass(frozen=True)
class _Step:
    epoch: int
    batch: int
    lr: float
    loss: Tensor
    patches: int


@contextmanager
def naming_run(run: Path) -> Iterator[None]:
    """Name the run in errors of its log in the block, such as that of a full disk, and report each once.

    TensorBoard writes in a thread, which prints its error, although the next call in this thread raises it.
    """
    print_error = threading.excepthook

    def report(error: threading.ExceptHookArgs) -> None:
        if not type(error.thread).__module__.startswith("tensorboard."):
            print_error(error)

    threading.excepthook = report
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(run)
        raise
    finally:
        threading.excepthook = print_error


class Log:
    """Writer of the log, truncated to the checkpoint from which a training resumes.

    Args:
        run: Folder of the run.
        epoch: Epoch to resume from.
        batch: Batches of that epoch that are done.

    Attributes:
        loss: Last loss read.
        ap: Last validation AP, or None.
        speed: Patches per second between the last two reads.
    """

    def __init__(self, run: Path, epoch: int, batch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        steps = [row for row in _read(run / STEPS_FILE, STEP_COLUMNS) if (int(row[0]), int(row[1])) < (epoch, batch)]
        epochs = [row for row in _read(run / EPOCHS_FILE, EPOCH_COLUMNS) if int(row[0]) < epoch]
        _rewrite(run / STEPS_FILE, STEP_COLUMNS, steps)
        _rewrite(run / EPOCHS_FILE, EPOCH_COLUMNS, epochs)
        self._steps = (run / STEPS_FILE).open("a", newline="")
        self._epochs = (run / EPOCHS_FILE).open("a", newline="")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=len(steps))
        self._written = len(steps)
        self._pending: list[_Step] = []
        self._last_read = time.monotonic()
        self.loss = float(steps[-1][2]) if steps else math.nan
        self.ap = float(epochs[-1][1]) if epochs else None
        self.speed = math.nan

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # closes all, even if one cannot be written
            for file in (self._board, self._epochs, self._steps):
                stack.callback(file.close)

    @property
    def pending(self) -> int:
        """Number of steps whose losses are not read yet."""
        return len(self._pending)

    def add_step(self, epoch: int, batch: int, lr: float, loss: Tensor, patches: int) -> None:
        """Add a step; a GPU may still be computing the loss."""
        self._pending.append(_Step(epoch, batch, lr, loss, patches))

    def read_pending(self, weights: list[Tensor]) -> None:
        """Read the losses of all pending steps and write them.

        Args:
            weights: Current weights of the network and its statistics, which must be finite too.

        Raises:
            NotFiniteError: At the first step whose loss is not finite, or at the last if the weights are not.
        """
        if not self._pending:
            return
        total = torch.stack([weight.sum() for weight in weights]).sum()
        *losses, total_value = torch.stack([*(step.loss.float() for step in self._pending), total.float()]).tolist()
        for step, loss in zip(self._pending, losses, strict=True):
            if not math.isfinite(loss):
                raise NotFiniteError(step.epoch, step.batch, f"the loss is {loss}")
            self._steps.write(f"{step.epoch},{step.batch},{loss:.6f},{step.lr:.6g}\n")
            self._board.add_scalar("loss", loss, self._written)
            self._board.add_scalar("lr", step.lr, self._written)
            self._written += 1
        last = self._pending[-1]
        if not math.isfinite(total_value):
            raise NotFiniteError(last.epoch, last.batch, "the weights are not finite")
        now = time.monotonic()
        self.loss = losses[-1]
        self.speed = sum(step.patches for step in self._pending) / max(now - self._last_read, 1e-9)
        self._board.add_scalar("patches per second", self.speed, self._written)
        self._pending.clear()
        self._last_read = now

    def add_validation(self, epoch: int, ap: float) -> None:
        """Write the validation AP after an epoch."""
        self.ap = ap
        self._epochs.write(f"{epoch},{ap:.6f}\n")
        self._board.add_scalar("validation AP", ap, self._written)

    def flush(self) -> None:
        """Write buffered lines to disk."""
        self._steps.flush()
        self._epochs.flush()
        self._board.flush()

    def restart_clock(self) -> None:
        """Exclude the time since the last read, such as that of a validation, from the speed."""
        self._last_read = time.monotonic()


def read_losses(run: Path) -> list[float]:
    """Return the loss of every step of a run."""
    return [float(row[2]) for row in _read(run / STEPS_FILE, STEP_COLUMNS)]


def read_times(run: Path) -> list[float]:
    """Return the time at the end of every step of a run, in epochs."""
    steps = [(int(row[0]), int(row[1])) for row in _read(run / STEPS_FILE, STEP_COLUMNS)]
    batches = {epoch: batch + 1 for epoch, batch in steps}  # the last batch of an epoch counts
    return [epoch + (batch + 1) / batches[epoch] for epoch, batch in steps]


def read_validation(run: Path) -> list[tuple[int, float]]:
    """Return the validated epochs of a run with the AP after each."""
    return [(int(row[0]), float(row[1])) for row in _read(run / EPOCHS_FILE, EPOCH_COLUMNS)]


def has_steps(run: Path) -> bool:
    """Return whether the log of a run has more than its first line, which may be incomplete."""
    path = run / STEPS_FILE
    return path.exists() and path.read_bytes().count(b"\n") > 1


def _read(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """Return the complete rows of a table; a killed process may leave an incomplete last line.

    Raises:
        DoapError: If a line is damaged.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    rows = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            row = line.decode("ascii").split(",")
            if number > 1:
                _check_row(row, columns)
                rows.append(row)
        except ValueError as error:
            raise DoapError(f"{path}: line {number} is damaged; remove the file, no weights depend on it") from error
    return rows


def _check_row(row: list[str], columns: tuple[str, ...]) -> None:
    for value, column in zip(row, columns, strict=True):
        if column in ("loss", "lr", "ap"):
            float(value)
        elif int(value) < 0:
            raise ValueError(value)


def _rewrite(path: Path, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    write_text(path, "".join(",".join(row) + "\n" for row in [list(columns), *rows]))
