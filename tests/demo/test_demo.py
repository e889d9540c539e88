"""The demo with a tiny network, two photos and few points."""

import html.parser
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import doap
from doap import networks
from doap.datasets.sets.patch_set import PatchSet
from doap.demo import evaluation, photos, stereo, training
from doap.demo.page import verdict, write_page
from doap.demo.run import MARK, PAGE, STEREO_PICTURE, DemoResult, run_demo
from doap.errors import DoapError
from doap.evaluation.image_pairs.scoring import score_all
from doap.evaluation.image_pairs.warped import score_warped
from doap.features import ModelDescriber
from doap.networks.inference import optimize_for_inference
from doap.training.log import Status, StatusCallback
from doap.training.recipes.recipe import Recipe

SHIPPED = "doap-tiny-128"
EARLIER = "checkpoint.safetensors"

pytestmark = pytest.mark.slow


class Images(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.sources.append(str(dict(attrs)["src"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder whose `out` holds the remains of an earlier demo."""
    folder = tmp_path_factory.mktemp("demo")
    for name in ("patches", "descriptors", *training.RECIPES):
        (folder / "out" / name).mkdir(parents=True)
        (folder / "out" / name / EARLIER).write_text("earlier")
    (folder / "out" / MARK).touch()
    return folder


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def fractions() -> list[float]:
    return []


@pytest.fixture(scope="module", autouse=True)
def _short() -> Iterator[None]:
    """A small demo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "DEFAULT_MODEL", SHIPPED)
        patch.setattr(evaluation, "SHIPPED", (SHIPPED, "doap-missing"))
        recipes = {
            name: Recipe(kind=recipe.kind, dimensions=32, width=2, batch_size=64, epochs=1)
            for name, recipe in training.RECIPES.items()
        }
        patch.setattr(training, "RECIPES", recipes)
        patch.setattr(training, "POINTS", 40)
        patch.setattr(evaluation, "COPIES", 2)
        patch.setattr(evaluation, "KEYPOINTS", 200)
        patch.setattr(stereo, "KEYPOINTS", 500)
        patch.setattr(photos, "TRAIN", photos.TRAIN[1:3])
        patch.setattr(photos, "TEST", photos.TEST[:1])
        yield


@pytest.fixture(scope="module")
def result(folder: Path, steps: list[str], fractions: list[float]) -> DemoResult:
    return run_demo(folder / "out", steps.append, lambda done, _text: fractions.append(done))


@pytest.fixture(scope="module")
def page(result: DemoResult, folder: Path) -> str:
    return write_page(result, folder / "out", 61.0).read_text()


def test_the_image_pair_is_matched_and_drawn_first(
    result: DemoResult, folder: Path, steps: list[str], fractions: list[float]
) -> None:
    assert steps[0] == "matching an image pair"
    assert steps[1] == f"{result.stereo.summary}: {folder / 'out' / 'matches.png'}"
    assert [step.split()[0] for step in steps[2:]] == ["cutting", "training", "matching"]
    assert {features.model for features in result.stereo.features} == {SHIPPED}
    assert result.stereo.summary.startswith(f"{int(result.stereo.matches.inliers.sum())} verified of ")
    assert max(fractions) == pytest.approx(1.0)


def test_the_page_shows_the_numbers_of_the_result(result: DemoResult, page: str, folder: Path) -> None:
    rows = result.evaluation.means
    assert {row["descriptor"] for row in rows} == {
        "SIFT", "RootSIFT", SHIPPED, *training.RECIPES, *(f"{name} untrained" for name in training.RECIPES),
    }  # fmt: skip
    for row in rows:
        assert f"<td>{row['descriptor']}</td><td>{row['mAP']:.1f}</td>" in page
    images = Images()
    images.feed(page)
    assert len(images.sources) == 5
    for name in images.sources:
        with Image.open(folder / "out" / name) as image:
            image.verify()
    assert f"{int(result.stereo.matches.inliers.sum())} of them on one epipolar geometry" in page
    assert f'<tr class="ours"><td>{SHIPPED}</td>' in page
    assert f"Shipped with doap: {SHIPPED}." in page


def test_a_shipped_model_scores_as_it_does_alone(result: DemoResult) -> None:
    assert result.shipped == [SHIPPED]
    rows = [row["ap"] for row in result.evaluation.scores if row["descriptor"] == SHIPPED]
    alone = score_all(
        result.pairs,
        len(result.pairs),
        [ModelDescriber(optimize_for_inference(doap.load(SHIPPED, fast=False)))],
        score=score_warped,
    )
    # Patches of one batch, described in other batches: equal up to the order of summation of this processor.
    assert rows == pytest.approx([row["ap"] for row in alone], abs=0.05)


def test_the_verdict_compares_with_sift(result: DemoResult) -> None:
    text = verdict(result)
    means = {row["descriptor"]: float(row["mAP"]) for row in result.evaluation.means}
    for name in training.RECIPES:
        for baseline in ("SIFT", "RootSIFT"):
            side = "above" if means[name] >= means[baseline] else "below"
            assert f"{abs(means[name] - means[baseline]):.1f} {side} {baseline}" in text


def test_an_earlier_demo_is_replaced(result: DemoResult, folder: Path) -> None:
    for name in ("patches", "descriptors"):
        assert (folder / "out" / name).is_dir()
        assert not (folder / "out" / name / EARLIER).exists()
    for run in result.runs.values():
        assert (run / EARLIER).stat().st_size > 1000


@pytest.mark.parametrize("name", ["patches/set.json", "descriptors/a.npz", "doap-demo-128/notes.txt", "matches.png"])
def test_what_no_demo_made_is_kept(tmp_path: Path, steps: list[str], name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of the user")
    before = list(steps)
    with pytest.raises(DoapError, match=f"{tmp_path / name.split('/')[0]}: exists, and no demo .* choose another"):
        run_demo(tmp_path, steps.append)
    assert path.read_text() == "of the user"
    assert steps == before
    assert not (tmp_path / MARK).exists()


@pytest.mark.usefixtures("page")
def test_all_output_is_guarded(result: DemoResult, folder: Path) -> None:
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {MARK, "patches", "descriptors", *result.runs, STEREO_PICTURE, *PAGE}


KILLED = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.managers import SyncManager
from pathlib import Path
from doap.demo import evaluation, run, training

if __name__ == "__main__":
    children = set()

    def submit(pool, *_):
        future = submit_task(pool, time.sleep, 600)
        children.update(pool._processes)
        return future

    def start(manager, *arguments):
        start_manager(manager, *arguments)
        children.add(manager._process.pid)

    submit_task, ProcessPoolExecutor.submit = ProcessPoolExecutor.submit, submit
    start_manager, SyncManager.start = SyncManager.start, start
    evaluation.make_test_pairs = lambda: []

    def update(*_):
        print(*children, flush=True)
        os.kill(os.getpid(), 9)

    run.train_and_evaluate_references(Path(), {name: Path() for name in training.RECIPES}, [], update)
"""


def test_no_process_of_a_killed_demo_remains(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    ended = subprocess.run([sys.executable, tmp_path / "killed.py"], capture_output=True, text=True, timeout=100)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    processes = ended.stdout.split()
    assert len(processes) == 3  # two workers, and the manager
    deadline = time.monotonic() + 60
    while remaining := [process for process in processes if is_running(process)]:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.1)


def is_running(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_no_photo_is_trained_on_and_tested() -> None:
    assert not set(photos.TRAIN) & ({*photos.TEST} | {*photos.STEREO})
    assert all(path.exists() for path in (*photos.TRAIN, *photos.TEST, *photos.STEREO))


def test_a_preparation_is_not_the_progress_of_a_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    losses: dict[str, tuple[float, float]] = {}
    seen: list[dict[str, tuple[float, float]]] = []

    def train(*_: object, progress: StatusCallback, **__: object) -> None:
        for status in (Status(1.0, preparation="loading the set"), Status(0.25, 0.5)):
            progress(status)
            seen.append(dict(losses))

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(PatchSet, "open", lambda path: path)
    training.train_descriptor("one", Recipe(), tmp_path, tmp_path, losses)
    assert seen == [{}, {"one": (0.25, 0.5)}]
