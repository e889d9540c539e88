import json
import re
from pathlib import Path

import pytest

from doap import Descriptor, load
from doap.datasets.official.opening import open_dataset
from doap.networks.card import read_card
from doap.training import trainer
from doap.training.recipes.reading import RENAMED_KEYS, read_recipe
from support.command_line import Doap
from support.figures import record_figures
from support.sets.small_official_sets import make_hpatches, make_phototour, make_rome
from support.trainings import same_weights

SMALL = "network: tiny\nwidth: 8\ndimensions: 16\nbatch_size: 48\nepochs: 2\nprecision: 'fp32'\n"
SPLITS = {"a": {"name": "a", "train": ["i_one", "v_three"], "test": ["v_two"]}}


@pytest.fixture
def hpatches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "r.yaml").write_text(SMALL)
    return make_hpatches(tmp_path / "data" / "hpatches", patches=4)


def test_the_training_sequences_of_a_split(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    (hpatches.parent / "hpatches-tasks").mkdir()
    (hpatches.parent / "hpatches-tasks" / "splits.json").write_text(json.dumps(SPLITS))
    status, shown, _ = doap("train", "r.yaml", "--data", hpatches, "--split", "a", "-o", "run", "--device", "cpu")
    assert status == 0
    assert "128 patches of 65x65, 8 groups, 2 sequences" in shown
    assert read_recipe(tmp_path / "run" / "recipe.yaml").split == "a"
    whole = unfinish(tmp_path / "run")
    assert doap("train", "--resume", "run")[0] == 0
    assert same_weights(tmp_path / "run", whole)


def unfinish(run: Path) -> Descriptor:
    """Remove the weights and the checkpoint of a run, and return its model."""
    model = load(run / "weights.safetensors", fast=False)
    for file in ("weights.safetensors", "weights.json", "checkpoint.safetensors"):
        (run / file).unlink()
    return model


def test_the_recipe_holds_the_split_and_the_option_overrides_it(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    (hpatches / "splits.json").write_text(json.dumps(SPLITS))
    (tmp_path / "r.yaml").write_text(f"{SMALL}split: b\n")
    words = ("train", "r.yaml", "--data", hpatches, "--device", "cpu", "-o")
    status, _, errors = doap(*words, "run")
    assert (status, "no split b; there are a" in errors) == (1, True)
    assert doap(*words, "run", "--split", "a")[0] == 0
    (data,) = read_card(tmp_path / "run" / "weights.safetensors").origin.training_sets
    assert data.model_dump() == {
        "path": str(hpatches), "layout": "hpatches", "split": "a", "sequences": ["i_one", "v_three"],
    }  # fmt: skip
    status, shown, _ = doap(*words, "all", "--set", "split=null")
    assert (status, "12 groups, 3 sequences" in shown) == (0, True)
    (data,) = read_card(tmp_path / "all" / "weights.safetensors").origin.training_sets
    assert (data.split, data.sequences) == ("", ["i_one", "v_three", "v_two"])


def test_romepatches_is_trained_on_its_training_half(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    assert hpatches.exists()  # the fixture sets the cache
    rome = make_rome(tmp_path / "romepatches", patches=60)
    small = [word for line in SMALL.splitlines() for word in ("--set", line.replace(": ", "="))]
    status, shown, _ = doap("train", "romepatches-real", "--data", rome, "-o", "run", "--device", "cpu", *small)
    assert (status, "60 patches of 51x51, 6 groups, 1 sequence" in shown) == (0, True)
    assert len((tmp_path / "run" / "log.csv").read_text().split()[1:]) == 2 * 6  # one batch per group and epoch
    assert doap("train", "r.yaml", "--data", rome, "--split", "train", "-o", "other", "--device", "cpu")[0] == 0
    status, _, errors = doap("train", "r.yaml", "--data", rome, "--split", "a", "-o", "third", "--device", "cpu")
    assert (status, "no split a; RomePatches is trained on its half train" in errors, errors.count("\n")) == (
        1,
        True,
        1,
    )


def test_several_sets_are_united_and_resumed(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    (hpatches / "splits.json").write_text(json.dumps(SPLITS))
    liberty = make_phototour(tmp_path / "liberty", patches=30)
    small = [word for line in SMALL.splitlines() for word in ("--set", line.replace(": ", "="))]
    words = ("train", "hardnet-plus-plus", "--data", liberty, "--data", hpatches, "-o", "run", "--device", "cpu")
    status, shown, _ = doap(*words, *small, "--set", "batch_size=16")
    assert status == 0
    assert "30 patches of 64x64, 10 groups, 1 sequence" in shown
    assert "128 patches of 65x65, 8 groups, 2 sequences" in shown
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"] == [str(liberty), str(hpatches)]
    card = read_card(tmp_path / "run" / "weights.safetensors")
    assert [(data.layout, data.split, data.sequences) for data in card.origin.training_sets] == [
        ("phototour", "", ["liberty"]), ("hpatches", "a", ["i_one", "v_three"]),
    ]  # fmt: skip
    assert (card.origin.data, card.extent) == (f"{liberty}, {hpatches}", 5.0)  # HPatches has more patches
    whole = unfinish(tmp_path / "run")
    assert doap("train", "--resume", "run")[0] == 0
    assert same_weights(tmp_path / "run", whole)


def test_a_run_with_its_split_beside_the_recipe_is_resumed(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    (hpatches / "splits.json").write_text(json.dumps(SPLITS))
    assert doap("train", "r.yaml", "--data", hpatches, "--split", "a", "-o", "run", "--device", "cpu")[0] == 0
    whole = unfinish(tmp_path / "run")
    recipe = (tmp_path / "run" / "recipe.yaml").read_text()
    (tmp_path / "run" / "recipe.yaml").write_text(
        re.sub(r"^(split|in_sequence_negatives): .*\n", "", recipe, flags=re.M)
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**record, "data": str(hpatches), "split": "a"}))
    assert doap("train", "--resume", "run")[0] == 0  # as written by version 0.2
    assert same_weights(tmp_path / "run", whole)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (None, "no splits.json in it or beside it; get it with doap data download hpatches-tasks"),
        ({"b": {**SPLITS["a"], "name": "b"}}, "no split a; there are b"),
        ({"a": {"name": "a", "test": ["v_two"]}}, "split a has no train sequences"),
        ({"a": {**SPLITS["a"], "train": ["i_nowhere"]}}, "1 of 1 sequence is not in the set: i_nowhere"),
    ],
)
def test_a_split_that_cannot_be_is_one_line(doap: Doap, hpatches: Path, splits: object, message: str) -> None:
    if splits:
        (hpatches / "splits.json").write_text(json.dumps(splits))
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "--split", "a", "-o", "run", "--device", "cpu")
    assert (status, message in errors, errors.count("\n")) == (1, True, 1)


@pytest.mark.parametrize("command", [("train", "r.yaml"), ("study", "objectives")])
def test_a_set_is_not_validated_on_itself(doap: Doap, hpatches: Path, tmp_path: Path, command: tuple[str, str]) -> None:
    (tmp_path / "link").symlink_to(hpatches)
    status, _, errors = doap(*command, "--data", hpatches, "--val", "link", "-o", "run", "--device", "cpu")
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith("doap: link: would be both trained and validated on; ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("train", "r.yaml"), ("study", "objectives-cpu")])
def test_a_set_is_not_validated_on_a_part_of_it(
    doap: Doap, hpatches: Path, tmp_path: Path, command: tuple[str, str]
) -> None:
    patches = open_dataset(hpatches)
    patches.select(patches.sequences == 1).save(tmp_path / "part")
    status, _, errors = doap(*command, "--data", hpatches, "--val", "part", "-o", "run", "--device", "cpu")
    assert (status, errors.count("\n")) == (1, 1)
    assert f"part: its sequence {patches.sequence_names[1]} would be both trained and validated on; " in errors
    assert not (tmp_path / "run").exists()


def test_a_fraction_is_not_set_beside_another_set(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    other = make_hpatches(tmp_path / "data" / "other", names=("v_four",), patches=3)
    words = ("train", "r.yaml", "--data", hpatches, "--val", other, "-o", "run", "--device", "cpu", "--set")
    status, _, errors = doap(*words, " val_fraction = 0.3")
    assert (status, errors) == (1, "doap: --set val_fraction=0.3: has no effect beside --val; leave it out\n")
    assert not (tmp_path / "run").exists()
    (tmp_path / "r.yaml").write_text(f"{SMALL}val_fraction: 0.3\n")  # a recipe is for both kinds of trainings
    assert doap(*words, "epochs=1")[0] == 0
    assert doap(*words[:7], "zero", *words[8:], "epochs=1", "--set", "val_fraction=0")[0] == 0
    for run in ("run", "zero"):
        assert "3 sequences" in json.loads((tmp_path / run / "run.json").read_text())["patches"]


def test_another_set_validates_every_epoch(
    doap: Doap, hpatches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = record_figures(monkeypatch)
    other = make_hpatches(tmp_path / "data" / "other", names=("v_four",), patches=3)
    words = ("train", "r.yaml", "--data", hpatches, "--val", other, "-o", "run", "--device", "cpu")
    status, shown, _ = doap(*words)
    assert status == 0
    assert "validation AP" in shown
    assert len((tmp_path / "run" / "validation.csv").read_text().split()) == 3
    (figure,) = figures
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "AP on validation sequences, %"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]
    assert (tmp_path / "run" / "training.png").exists()
    card = json.loads((tmp_path / "run" / "best.json").read_text())
    assert next(iter(card["origin"]["figures"])).startswith("validation AP % after epoch")
    for file in ("weights.safetensors", "weights.json"):
        (tmp_path / "run" / file).unlink()
    assert doap("train", "--resume", "run")[0] == 0


def test_resuming_takes_nothing_else(doap: Doap, tmp_path: Path) -> None:
    status, _, errors = doap("train", "--resume", "run", "--devices", "2")
    assert (status, "give no other option with it" in errors) == (1, True)
    status, _, errors = doap("train", "--resume", tmp_path)
    assert (status, "not a run folder" in errors) == (1, True)


def test_renamed_keys_and_options_are_one_line(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "run", "--set", "list_size=64")
    assert (status, errors) == (1, "doap: --set list_size=64: list_size was renamed; use batch_size\n")
    (tmp_path / "r.yaml").write_text("held_out: 0.1\n")
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "run")
    assert (status, errors) == (1, "doap: r.yaml: held_out was renamed; use val_fraction\n")
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "--validate", hpatches, "-o", "run")
    assert (status, errors) == (1, "doap: --validate was removed: use --val\n")
    assert not (tmp_path / "run").exists()


def test_a_run_of_version_0_1_is_resumed(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    assert doap("train", "r.yaml", "--data", hpatches, "-o", "run", "--device", "cpu")[0] == 0
    whole = unfinish(tmp_path / "run")
    text = (tmp_path / "run" / "recipe.yaml").read_text()
    for old, new in RENAMED_KEYS.items():
        text = re.sub(rf"^{new}:", f"{old}:", text, flags=re.MULTILINE)
    assert "list_size: 48" in text
    (tmp_path / "run" / "recipe.yaml").write_text(text)
    assert doap("train", "--resume", "run")[0] == 0
    assert same_weights(tmp_path / "run", whole)


def test_a_model_is_fine_tuned(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    assert doap("train", "r.yaml", "--data", hpatches, "-o", "first", "--device", "cpu")[0] == 0
    first = tmp_path / "first" / "weights.safetensors"
    words = ("train", "r.yaml", "--data", hpatches, "-o", "second", "--from", "first/weights.safetensors")
    status, _, _ = doap(*words, "--set", "epochs=1", "--device", "cpu")
    assert status == 0
    assert read_recipe(tmp_path / "second" / "recipe.yaml").initial_weights == str(first)
    whole = unfinish(tmp_path / "second")
    assert doap("train", "--resume", "second")[0] == 0
    assert same_weights(tmp_path / "second", whole)
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "third", "--from", "doap-128")
    assert (status, errors.count("\n")) == (1, 1)
    assert (
        "its network has network=l2net, dimensions=128, width=24, surround=1, but that of the recipe network=" in errors
    )
    assert not (tmp_path / "third").exists()


def test_own_photos_are_validated_by_default(doap: Doap, hpatches: Path) -> None:
    small = [word for line in SMALL.splitlines() for word in ("--set", line.replace(": ", "="))]
    words = ("train", "photos-real", "--data", hpatches, *small, "--device", "cpu", "-o")
    status, shown, _ = doap(*words, "run")
    assert (status, "validation AP" in shown) == (0, True)
    status, shown, _ = doap(*words, "other", "--set", "val_fraction=0")
    assert (status, "validation AP" in shown) == (0, False)


def test_a_training_killed_before_its_recipe_was_written_starts_again(
    doap: Doap, hpatches: Path, tmp_path: Path
) -> None:
    words = ("train", "r.yaml", "--data", hpatches, "-o", "run", "--device", "cpu")
    assert doap(*words)[0] == 0
    for path in (tmp_path / "run").iterdir():
        if path.is_file() and path.name != "run.json":
            path.unlink()
    status, _, errors = doap("train", "--resume", "run")
    assert (status, errors) == (1, "doap: run: was stopped before its first step; start it again with -o run\n")
    assert doap(*words)[0] == 0


def test_a_refused_training_does_not_block_its_folder(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    words = ("train", "r.yaml", "--data", hpatches, "-o", "run", "--device", "cpu")
    one_scene = ("--set", "val_fraction=0.3", "--set", "in_sequence_negatives=false")  # for the validation
    status, _, errors = doap(*words, *one_scene)
    assert (status, errors.count("\n"), "validation: " in errors) == (1, 1, True)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    assert doap(*words)[0] == 0
    status, _, errors = doap(*words)
    assert (status, errors.count("\n"), "run: exists already" in errors) == (1, 1, True)


@pytest.mark.parametrize("command", ["train", "sweep", "study", "reproduce"])
@pytest.mark.parametrize("device", ["meta", "vulkan", "cuda:99", "gpu", ""])
def test_a_device_that_cannot_compute_is_one_line(
    doap: Doap, hpatches: Path, tmp_path: Path, command: str, device: str
) -> None:
    words = {
        "train": ("train", "r.yaml", "--data", hpatches, "-o", "run"),
        "sweep": ("sweep", "r.yaml", "--data", hpatches, "--over", "lr=0.5", "--set", "val_fraction=0.3", "-o", "run"),
        "study": ("study", "objectives", "--data", hpatches, "--val", hpatches, "-o", "run"),
        "reproduce": ("reproduce", "figure-patches", "--data", tmp_path / "data", "-o", "run"),
    }[command]
    status, _, errors = doap(*words, "--device", device)
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"doap: device {device}: ")
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_is_one_line(
    doap: Doap, hpatches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    assert doap("train", "r.yaml", "--data", hpatches, "-o", "run", "--device", "cpu")[0] == 0
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    whole = load(tmp_path / "run" / "weights.safetensors", fast=False)
    for file in ("weights.safetensors", "weights.json"):
        (tmp_path / "run" / file).unlink()
    content = bytearray(checkpoint.read_bytes())
    content[-1] ^= 1
    checkpoint.write_bytes(content)
    status, _, errors = doap("train", "--resume", "run")
    assert (status, errors.count("\n"), "and there is no earlier one" in errors) == (1, 1, True)
    checkpoint.unlink()
    (tmp_path / "run" / "log.csv").unlink()
    assert doap("train", "--resume", "run")[0] == 0
    assert same_weights(tmp_path / "run", whole)
    assert not caplog.records


@pytest.mark.parametrize(
    ("words", "key", "option"),
    [
        (("--split", "a", "--set", "split=b"), "split", "--split"),
        (("--from", "doap-128", "--set", "initial_weights=doap-256b"), "initial_weights", "--from"),
    ],
)
def test_what_an_option_sets_is_not_set_otherwise(
    doap: Doap, hpatches: Path, tmp_path: Path, words: tuple[str, ...], key: str, option: str
) -> None:
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "run", *words)
    assert (status, errors) == (1, f"doap: --set {key}: {option} sets it, too; give one of them\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (("groups_per_sequence=16",), "groups_per_sequence=16 needs sampling=pools; without it, set "),
        (("distillation_weight=2.5",), "distillation_weight=2.5 needs a teacher; without it, set "),
        (("transformer_lr_divisor=5",), "transformer_lr_divisor=5 needs transformer=true; without it, set "),
    ],
)
def test_keys_without_an_effect_are_refused(
    doap: Doap, hpatches: Path, tmp_path: Path, settings: tuple[str, ...], error: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "run", *words)
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"doap: r.yaml: {error}")
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_called_like_a_prefix(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "-o", "run@64")
    assert (status, errors) == (1, "doap: run@64: names a prefix of the model run; choose another name\n")
    assert not (tmp_path / "run@64").exists()
