"""No code of a file is run, no format but the listed ones is decoded, and shipped weights are those of their cards."""

from pathlib import Path

import pytest

from campaign.supply import undocumented_plain_http, unsafe_calls, wrong_hashes


def test_nothing_in_the_package_can_run_code_of_a_file() -> None:
    assert list(unsafe_calls()) == []


@pytest.mark.parametrize(
    "code",
    [
        "eval(text)",
        "pickle.load(file)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(words, shell=True)",
        "Image.open(path)",
        "yaml.load(text, Loader=yaml.Loader)",
        "tarfile.open(path).extractall(folder)",
    ],
)
def test_unsafe_calls_are_found(tmp_path: Path, code: str) -> None:
    (tmp_path / "module.py").write_text(f"def f():\n    return {code}\n")
    ((place, _),) = unsafe_calls(tmp_path)
    assert place == "module.py:2"


@pytest.mark.parametrize(
    "code",
    ["torch.load(p, weights_only=True)", "np.load(path)", "model.eval()", "re.compile(x)", "Image.open(p, formats=F)"],
)
def test_safe_calls_are_not(tmp_path: Path, code: str) -> None:
    (tmp_path / "module.py").write_text(code)
    assert list(unsafe_calls(tmp_path)) == []


def test_data_come_over_https_or_it_is_told() -> None:
    assert undocumented_plain_http() == []


def test_shipped_weights_are_those_of_their_cards() -> None:
    assert wrong_hashes() == []
