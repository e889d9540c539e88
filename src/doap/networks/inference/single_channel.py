"""Convolutions of a single input channel, for which libraries have no fast kernel."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.inference.convolving import convolve
from doap.networks.inference.layers import InferenceConv
from doap.networks.inference.precision import is_arm
from doap.networks.network import as_rows

PRODUCT_COLUMNS = 32  # of a matrix product that fills the vector units of an ARM CPU
WORD = torch.int64  # several pixels of a block, moved at once


class ProductConv(InferenceConv):
    """A convolution of one input channel as a matrix product with the pixels of each window, for ARM CPUs.

    With few output channels, a window covers several neighbouring outputs: fewer pixels are copied, and the product is
    faster in spite of the zeros among its weights.
    """

    def __init__(self, convolution: nn.Conv2d, relu: bool, dtype: torch.dtype) -> None:
        super().__init__(convolution, relu, dtype)
        self.columns = max(1, PRODUCT_COLUMNS // convolution.out_channels)
        self.wide_weight: nn.Parameter | None = None
        if self.columns > 1:
            wide = _widen(self.weight, self.columns, self.stride[1])
            self.wide_weight = nn.Parameter(wide, requires_grad=False)

    def convolve(self, maps: Tensor) -> Tensor:
        """Multiply the pixels of each window, (N, H', W' / columns, pixels), with the weights."""
        if maps.device.type != "cpu":
            return super().convolve(maps)
        (rows, columns), (row_step, column_step), (top, left) = self.kernel_size, self.stride, self.padding
        padded = F.pad(maps[:, 0], (left, left, top, top))
        outputs = (padded.shape[2] - columns) // column_step + 1
        weight, count = as_rows(self.weight), 1
        if self.wide_weight is not None and outputs % self.columns == 0:
            weight, count = self.wide_weight, self.columns
        width = columns + (count - 1) * column_step
        windows = padded.unfold(1, rows, row_step).unfold(2, width, count * column_step).flatten(3)
        values = F.linear(windows, weight, self.bias.repeat(count))
        by_column = torch.unflatten(values, 3, (count, len(self.bias)))
        values = by_column.flatten(2, 3).permute(0, 3, 1, 2)
        return F.relu(values, inplace=True) if self.relu else values


class BlockConv(InferenceConv):
    """A convolution of one input channel as one of stride 1 whose channels are the pixels of a block of the map.

    Blocks have the size of the stride, which divides the kernel; a row of a block is one `WORD`, so that gathering the
    blocks takes less time than the faster kernel saves. Other maps are convolved as they are: those that blocks do not
    cover exactly, and those of another dtype, after `model.float()`.
    """

    def __init__(self, convolution: nn.Conv2d, relu: bool, dtype: torch.dtype) -> None:
        super().__init__(convolution, relu, dtype)
        weight = _blocks_of(self.weight[:, 0], *self.stride).contiguous(memory_format=torch.channels_last)
        self.block_weight = nn.Parameter(weight, requires_grad=False)

    def convolve(self, maps: Tensor) -> Tensor:
        """Convolve the (N, pixels, rows, columns) blocks of the padded maps."""
        (row_step, column_step), (top, left) = self.stride, self.padding
        padded = F.pad(maps[:, 0], (left, left, top, top))
        is_divisible = not padded.shape[1] % row_step and not padded.shape[2] % column_step
        if not is_divisible or not _is_word(column_step, padded.dtype) or not len(maps):
            return super().convolve(maps)
        words = torch.unflatten(padded.view(WORD), 1, (-1, row_step)).transpose(2, 3)
        blocks = words.contiguous().view(padded.dtype).permute(0, 3, 1, 2)
        return convolve(blocks, self.block_weight, self.bias, (1, 1), (0, 0), self.relu, self.is_bounded)


def inference_conv(convolution: nn.Conv2d, relu: bool, dtype: torch.dtype) -> InferenceConv:
    """Return the fastest form of a convolution, optionally followed by ReLU."""
    if convolution.in_channels == 1 and is_arm():
        return ProductConv(convolution, relu, dtype)
    (rows, columns), (row_step, column_step) = convolution.kernel_size, convolution.stride
    has_blocks = not rows % row_step and not columns % column_step and _is_word(column_step, dtype)
    if convolution.in_channels == 1 and dtype == torch.bfloat16 and has_blocks:
        return BlockConv(convolution, relu, dtype)
    return InferenceConv(convolution, relu, dtype)


def _is_word(count: int, dtype: torch.dtype) -> bool:
    """Return whether so many values have the size of a word."""
    return count * dtype.itemsize == WORD.itemsize


def _blocks_of(planes: Tensor, rows: int, columns: int) -> Tensor:
    """Return (N, rows · columns, H / rows, W / columns): the pixels of the blocks of (N, H, W) planes."""
    blocks = torch.unflatten(torch.unflatten(planes, 2, (-1, columns)), 1, (-1, rows))
    return blocks.permute(0, 2, 4, 1, 3).flatten(1, 2)


def _widen(weight: Tensor, columns: int, step: int) -> Tensor:
    """Return the weights of several neighbouring outputs: (columns · K, rows · width) of (K, 1, rows, kernel width)."""
    channels, _, rows, width = weight.shape
    wide = weight.new_zeros(columns, channels, rows, width + (columns - 1) * step)
    for column in range(columns):
        wide[column, :, :, column * step : column * step + width] = weight[:, 0]
    return wide.flatten(2).flatten(0, 1)
