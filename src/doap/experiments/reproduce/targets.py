"""The tables and figures of the paper: the data sets, trainings and baselines that each of them needs."""

from dataclasses import dataclass
from itertools import chain

PAPER_SCENES = ("liberty", "notredame", "yosemite")
LOOK_ALIKE_SCENES = ("a", "b", "c")  # of `doap.datasets.build.look_alike`
PAPER_BATCH_SIZES = (256, 512, 1024, 2048, 4096)
MINING_SEQUENCES = ("v_london", "i_steps", "v_maskedman", "i_yellowtent")  # in the paper's figure

PHOTOTOUR_RECIPES = {
    "TFeat+": "phototour-triplet",
    "TL-AS-GOR+": "phototour-tl-as-gor",
    "L2Net+": "phototour-l2net",
    "HardNet+": "phototour-hardnet",
    "HardNet-GOR+": "phototour-hardnet-gor",
    "CS-L2Net+": "phototour-cs-l2net",
    "DOAP+": "phototour-real",
    "DOAP-ST+": "phototour-st-real",
    "binary-DOAP+": "phototour-binary",
    "binary-DOAP-ST+": "phototour-st-binary",
}
"""Recipes of table 1, by the name of the method."""

HPATCHES_RECIPES = {
    "L2Net": "hpatches-l2net",
    "DOAP": "hpatches-real",
    "DOAP-ST": "hpatches-st-real",
    "DOAP-ST-LM": "hpatches-st-lm-real",
}
ROMEPATCHES_RECIPES = {"DOAP": "romepatches-real", "binary-DOAP": "romepatches-binary"}

# Methods that the paper does not have in a table, for comparisons on equal terms.
MORE_HPATCHES_RECIPES = {
    "TFeat": "hpatches-triplet",
    "TL-AS-GOR": "hpatches-tl-as-gor",
    "HardNet": "hpatches-hardnet",
    "HardNet-GOR": "hpatches-hardnet-gor",
    "CS-L2Net": "hpatches-cs-l2net",
    "binary-DOAP": "hpatches-binary",
    "binary-DOAP-ST": "hpatches-st-binary",
    "binary-DOAP-ST-LM": "hpatches-st-lm-binary",
}
MORE_ROMEPATCHES_OBJECTIVES = {
    "TFeat": "triplet",
    "TL-AS-GOR": "triplet-gor",
    "L2Net": "l2net",
    "HardNet": "hardnet",
    "HardNet-GOR": "hardnet-gor",
}


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        name: Name of the method and of its run folder.
        recipe: Name of a shipped recipe.
        datasets: Names of the data sets to train on.
        settings: `key=value` texts that override the recipe.
    """

    name: str
    recipe: str
    datasets: tuple[str, ...]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchSizes:
    """A sweep over the batch size.

    Attributes:
        name: Name of its folder.
        recipe: Name of a shipped recipe.
        dataset: Name of the data set to train on.
        tests: Names of the data sets to evaluate on.
        metric: Metric of the sweep; see `doap.experiments.sweep_metrics`.
        values: Batch sizes.
    """

    name: str
    recipe: str
    dataset: str
    tests: tuple[str, ...]
    metric: str
    values: tuple[int, ...] = PAPER_BATCH_SIZES


@dataclass(frozen=True)
class Target:
    """A table or figure.

    Attributes:
        name: Name on the command line.
        datasets: Names of the data sets that it needs.
        trainings: Trainings of its methods.
        baselines: Handcrafted baselines.
        binarised: Names of trainings whose real-valued models are also evaluated as bits.
        sweeps: Sweeps over the batch size.
        optional: Names of data sets that improve the figure and are used if present.
    """

    name: str
    datasets: tuple[str, ...]
    trainings: tuple[Training, ...] = ()
    baselines: tuple[str, ...] = ()
    binarised: tuple[str, ...] = ()
    sweeps: tuple[BatchSizes, ...] = ()
    optional: tuple[str, ...] = ()


def binary_name(name: str) -> str:
    """Return the name of a binarised model."""
    return f"binary-{name}"


def paper_targets() -> dict[str, Target]:
    """Return the tables and figures of the paper, in its order.

    Example:
        >>> targets = paper_targets()
        >>> list(targets)[:3], len(targets["table-1"].trainings)
        (['figure-patches', 'table-1', 'figure-batch-size'], 30)
    """
    phototour = tuple(f"phototour-{scene}" for scene in PAPER_SCENES)
    return _by_name(
        Target("figure-patches", ("romepatches", phototour[0], "hpatches")),
        _table_1(PAPER_SCENES),
        _figure_batch_size(PAPER_SCENES),
        _figure_hpatches(PAPER_SCENES[0]),
        _table_2(),
        _figure_oxford(PAPER_SCENES[0]),
        _figure_alignment(),
        Target("figure-mining", ("hpatches",), optional=("hpatches-sequences",)),
    )


def look_alike_targets() -> dict[str, Target]:
    """Return the targets for look-alike sets: those of the paper that these sets allow, with more methods."""
    scenes = LOOK_ALIKE_SCENES
    table_2, hpatches = _table_2(), _figure_hpatches(scenes[0])
    rome = tuple(
        Training(f"{name}-romepatches", "romepatches-real", ("romepatches",), _objective_settings(objective))
        for name, objective in MORE_ROMEPATCHES_OBJECTIVES.items()
    )
    without_st = Training("DOAP-LM-hpatches", "hpatches-st-lm-real", ("hpatches",), _without_transformer())
    more = (*_trainings(MORE_HPATCHES_RECIPES, "hpatches"), without_st)
    return _by_name(
        Target("figure-patches", ("romepatches", f"phototour-{scenes[0]}", "hpatches")),
        _table_1(scenes),
        _figure_batch_size(scenes),
        Target(hpatches.name, hpatches.datasets, (*hpatches.trainings, *more), hpatches.baselines),
        Target(table_2.name, table_2.datasets, (*table_2.trainings, *rome), table_2.baselines),
        _figure_alignment(),
        Target("figure-mining", ("hpatches",)),
    )


def _table_1(scenes: tuple[str, ...]) -> Target:
    trainings = tuple(
        chain.from_iterable(_trainings(PHOTOTOUR_RECIPES, f"phototour-{scene}", suffix=scene) for scene in scenes)
    )
    return Target(
        "table-1",
        tuple(f"phototour-{scene}" for scene in scenes),
        trainings,
        ("sift", "binboost-64"),
        binarised=tuple(f"{name}-{scene}" for name in ("L2Net+", "CS-L2Net+") for scene in scenes),
    )


def _figure_batch_size(scenes: tuple[str, ...]) -> Target:
    phototour = tuple(f"phototour-{scene}" for scene in scenes)
    sweeps = (
        BatchSizes("phototour", "phototour-real", phototour[0], phototour[1:], "fpr95"),
        BatchSizes("hpatches", "hpatches-real", "hpatches", ("hpatches",), "retrieval"),
        BatchSizes("romepatches", "romepatches-real", "romepatches", ("romepatches",), "map"),
    )
    return Target("figure-batch-size", (*phototour, "hpatches", "romepatches"), sweeps=sweeps)


def _figure_hpatches(scene: str) -> Target:
    phototour = f"phototour-{scene}"
    names = ("TFeat+", "L2Net+", "HardNet+", "DOAP+", "DOAP-ST+")
    on_scene = _trainings({name: PHOTOTOUR_RECIPES[name] for name in names}, phototour, suffix=scene)
    trainings = (*on_scene, _hardnet_plus_plus(phototour), *_trainings(HPATCHES_RECIPES, "hpatches"))
    return Target("figure-hpatches", ("hpatches", phototour), trainings, ("sift", "rootsift"))


def _table_2() -> Target:
    return Target("table-2", ("romepatches",), _trainings(ROMEPATCHES_RECIPES, "romepatches"), ("sift",))


def _figure_oxford(scene: str) -> Target:
    phototour = f"phototour-{scene}"
    names = ("L2Net+", "HardNet+", "DOAP-ST+", "binary-DOAP-ST+")
    on_scene = _trainings({name: PHOTOTOUR_RECIPES[name] for name in names}, phototour, suffix=scene)
    on_hpatches = _trainings({name: HPATCHES_RECIPES[name] for name in ("L2Net", "DOAP-ST")}, "hpatches")
    trainings = (*on_scene, _hardnet_plus_plus(phototour), *on_hpatches)
    return Target("figure-oxford", ("oxford", phototour, "hpatches"), trainings, ("sift", "liop"))


def _figure_alignment() -> Target:
    replicate = Training("DOAP-ST-hpatches", "hpatches-st-real", ("hpatches",))
    zeros = Training("DOAP-ST-zeros-hpatches", "hpatches-st-real", ("hpatches",), ("transformer_padding=zeros",))
    return Target("figure-alignment", ("hpatches",), (replicate, zeros))


def _hardnet_plus_plus(phototour: str) -> Training:
    return Training("HardNet++", "hardnet-plus-plus", (phototour, "hpatches"))


def _trainings(recipes: dict[str, str], dataset: str, suffix: str | None = None) -> tuple[Training, ...]:
    return tuple(Training(f"{name}-{suffix or dataset}", recipe, (dataset,)) for name, recipe in recipes.items())


def _objective_settings(objective: str) -> tuple[str, ...]:
    return f"objective={objective}", "views_per_group=2"


def _without_transformer() -> tuple[str, ...]:
    return "transformer=false", "transformer_bounded=true"


def _by_name(*targets: Target) -> dict[str, Target]:
    return {target.name: target for target in targets}
