import numpy as np
import pytest

from doap.networks.int8.quantization import MAX_BIAS, Quantization, quantize_weights


@pytest.mark.parametrize(("signed", "smallest"), [(False, 0.0), (True, -5.1)])
def test_values_in_range_are_rounded_to_the_nearest_step(signed: bool, smallest: float) -> None:
    quantization = Quantization.from_range(5.1, signed)
    values = np.linspace(smallest, 5.1, 1001, dtype=np.float32)
    error = quantization.dequantize(quantization.quantize(values)) - values
    assert np.abs(error).max() <= quantization.scale / 2 * 1.001
    assert quantization.quantize(np.zeros(1, np.float32))[0] == quantization.zero_point  # zero is exact


def test_values_out_of_range_saturate() -> None:
    unsigned, signed = Quantization.from_range(2.0, signed=False), Quantization.from_range(2.0, signed=True)
    values = np.array([-9.0, 9.0], np.float32)
    assert unsigned.quantize(values).tolist() == [0, 255]
    assert signed.quantize(values).tolist() == [0, 255]
    assert signed.quantize(np.array([2.0, -2.0], np.float32)).tolist() == [255, 1]


def test_each_output_channel_has_its_own_scale() -> None:
    random = np.random.default_rng(0)
    weight = random.normal(size=(5, 3, 3, 3)) * np.array([1e-4, 1e-2, 1, 30, 500]).reshape(-1, 1, 1, 1)
    bias = random.normal(size=5)
    quantized = quantize_weights(weight, bias, np.float32(0.03))
    for channel in range(5):
        scale = np.abs(weight[channel]).max() / 127
        assert np.abs(quantized.weight[channel]).max() == 127
        restored = quantized.weight[channel] * float(quantized.scale[channel])
        assert np.abs(restored - weight[channel]).max() <= scale / 2 * 1.001
        step = scale * np.float32(0.03)
        assert abs(quantized.bias[channel] * step - bias[channel]) <= step / 2 * 1.01 + 1e-6 * abs(bias[channel])


def test_channels_without_weights_keep_their_bias() -> None:
    quantized = quantize_weights(np.zeros((2, 4)), np.array([3.0, 0.0]), np.float32(0.1))
    assert not quantized.weight.any()
    assert abs(quantized.bias[0]) <= MAX_BIAS
    assert quantized.bias[0] * quantized.scale[0] * np.float32(0.1) == pytest.approx(3.0)
    assert quantized.bias[1] == 0
