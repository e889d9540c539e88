"""Figures of trainings: losses and validation AP."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from doap.files import write_figure
from doap.training.log import read_losses, read_times, read_validation

LOSS_COLOUR, AP_COLOUR = "#4575b4", "#1a9850"


def draw_run(run: Path) -> None:
    """Draw the loss and the validation AP of a run folder as its training.png."""
    if losses := read_losses(run):  # none if the log was removed
        draw_training(read_times(run), losses, read_validation(run), run / "training.png")


def draw_losses(losses: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw loss against step, one curve per training."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, values in losses.items():
        axes.plot(np.arange(1, len(values) + 1), values, label=name, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.legend()
    write_figure(figure, path)


def draw_training(
    epochs: Sequence[float], losses: Sequence[float], validation: Sequence[tuple[int, float]], path: Path
) -> None:
    """Draw a training: the loss of each step, its running mean, and the validation AP after each epoch.

    Args:
        epochs: Time of each step, in epochs.
        losses: Loss of each step.
        validation: Epochs, from 0, and the AP after each; empty if there is no validation set.
        path: File to write.
    """
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    window = max(1, len(losses) // 50)
    mean = np.convolve(losses, np.ones(window) / window, mode="valid")
    axes.plot(epochs, losses, color=LOSS_COLOUR, linewidth=0.6, alpha=0.35)
    axes.plot(epochs[window - 1 :], mean, color=LOSS_COLOUR, linewidth=1.6, label="loss")
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss", color=LOSS_COLOUR)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    if validation:
        _draw_validation(axes.twinx(), validation)
    write_figure(figure, path)


def _draw_validation(axes: Axes, validation: Sequence[tuple[int, float]]) -> None:
    """Draw the validation AP of each epoch and annotate the best."""
    epochs, values = zip(*((epoch + 1, 100 * ap) for epoch, ap in validation), strict=True)
    axes.plot(epochs, values, color=AP_COLOUR, linewidth=1.6, marker="o", markersize=3)
    best = int(np.argmax(values))
    below = best == len(values) - 1 or values[best] > np.mean(values)
    axes.annotate(
        f"{values[best]:.1f}",
        (epochs[best], values[best]),
        textcoords="offset points",
        xytext=(0, -14 if below else 8),
        ha="center",
        color=AP_COLOUR,
    )
    axes.set_ylabel("AP on validation sequences, %", color=AP_COLOUR)
