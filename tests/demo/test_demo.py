import html.parser
from pathlib import Path

import pytest
from PIL import Image

import doap
from doap import networks
from doap.demo import page, photos
from doap.demo import run as study
from doap.demo.page import verdict, write_page
from doap.demo.run import Progress, run_study
from doap.evaluation.image_pairs import warped
from doap.evaluation.image_pairs.scoring import score_all
from doap.evaluation.image_pairs.warped import mean_scores
from doap.features import ModelDescriber
from doap.networks import registry
from doap.networks.inference import optimize_for_inference
from doap.training.recipe import Recipe
from support.small_models import with_extents

BETTER = "doap-better"


class Pictures(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.found.append(str(dict(attrs)["src"]))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same demo with a tiny network, three photos and few points, and one model that ships beside the demo's."""
    shelf = tmp_path / "weights"
    for name in study.RECIPES:
        with_extents(shelf / f"{name}.safetensors", name)
    with_extents(shelf / f"{BETTER}.safetensors", BETTER, dog=8.5)
    monkeypatch.setattr(registry, "WEIGHTS_FOLDER", shelf)
    monkeypatch.setattr(networks, "DEFAULT_MODEL", BETTER)
    recipes = {
        name: Recipe(kind=recipe.kind, dimensions=32, width=2, batch_size=128, epochs=2)
        for name, recipe in study.RECIPES.items()
    }
    for module in (study, page):
        monkeypatch.setattr(module, "RECIPES", recipes)
        monkeypatch.setattr(module, "COPIES", 2)
    monkeypatch.setattr(study, "POINTS", 80)
    monkeypatch.setattr(photos, "TRAINING", photos.TRAINING[1:4])
    monkeypatch.setattr(photos, "HELD_OUT", photos.HELD_OUT[:1])


@pytest.mark.usefixtures("short")
def test_the_demo_ends_with_a_page_whose_numbers_are_the_studys(tmp_path: Path) -> None:
    steps: list[str] = []
    shares: list[float] = []
    progress = Progress(steps.append, lambda share, _loss: shares.append(share))
    done = run_study(tmp_path / "demo", progress)
    assert len(steps) == 4
    assert max(shares) == pytest.approx(1.0)
    text = write_page(done, tmp_path / "demo", 61.0).read_text()
    rows = mean_scores(done.scores)
    assert {row["descriptor"] for row in rows} == {
        "SIFT", "RootSIFT", BETTER, *study.RECIPES, *(f"{name} untrained" for name in study.RECIPES),
    }  # fmt: skip
    for row in rows:
        assert f"<td>{row['descriptor']}</td><td>{row['mAP']:.1f}</td>" in text
    pictures = Pictures()
    pictures.feed(text)
    assert len(pictures.found) == 5
    for name in pictures.found:
        with Image.open(tmp_path / "demo" / name) as picture:
            picture.verify()
    assert "narrower than the paper's 32" in text
    assert f"{int(done.stereo_matches.inliers.sum())} of them on one epipolar geometry" in text
    check_the_shipped_one(done, text)
    run_study(tmp_path / "demo", progress)  # again, over the old one


def check_the_shipped_one(done: study.Study, text: str) -> None:
    """It is judged as it describes by itself, shown as ours, and it is the default, which matches the stereo pair."""
    assert done.shipped == [BETTER]
    own = [row["ap"] for row in done.scores if row["descriptor"] == BETTER]
    alone = score_all(
        done.pairs,
        len(done.pairs),
        [ModelDescriber(optimize_for_inference(doap.load(BETTER)))],
        score=warped.score_warped,
    )
    assert own == [row["ap"] for row in alone]
    assert {features.model for features in done.stereo_features} == {BETTER}
    assert f"<tr class=ours><td>{BETTER}</td>" in text
    assert f"Shipped with doap: {BETTER}." in text
    assert f"matched by {BETTER}" in text


@pytest.mark.usefixtures("short")
def test_the_verdict_says_which_way_the_numbers_fell(tmp_path: Path) -> None:
    done = run_study(tmp_path / "demo", Progress(lambda _step: None, lambda _share, _loss: None))
    said = verdict(done)
    rows = {row["descriptor"]: float(row["mAP"]) for row in mean_scores(done.scores)}
    for name in study.RECIPES:
        side = "above" if rows[name] >= rows["SIFT"] else "below"
        assert f"{abs(rows[name] - rows['SIFT']):.1f} {side} SIFT" in said


def test_no_photo_is_on_both_sides() -> None:
    assert not set(photos.TRAINING) & ({*photos.HELD_OUT} | {*photos.STEREO})
    assert all(path.exists() for path in (*photos.TRAINING, *photos.HELD_OUT, *photos.STEREO))
