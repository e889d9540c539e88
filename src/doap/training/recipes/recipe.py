"""Training recipes: everything that decides a training besides the data, typed, in one YAML file."""

from typing import Annotated, Literal, Self

import yaml
from pydantic import ConfigDict, Field, model_validator

from doap.choices import MAX_SEED
from doap.datasets.label_mining.settings import CLUSTERS, MAX_CLUSTERS, PERCENTILE, MiningSettings
from doap.datasets.sets.frame_set import Source
from doap.extents import MAX_EXTENT
from doap.images.jitter.views import JitterFactors
from doap.networks.architecture import Architecture
from doap.types import Kind

Objective = Literal[
    "ap", "hardnet", "hardnet-gor", "l2net", "sosnet", "hynet", "fastap", "smooth-ap", "triplet", "triplet-gor"
]
EPOCHS_PER_STEP = 10
MAX_STEPS = 300  # of the schedule; the next powers of ten are no floats
MAX_BINS = 65536  # as many as the largest descriptor has bits
MAX_COUNT = 10**9
MAX_FACTOR = 1e9  # products of several factors still fit float32
MIN_PREFIX = 8  # dimensions or bits

Count = Annotated[int, Field(le=MAX_COUNT)]
Factor = Annotated[float, Field(le=MAX_FACTOR)]


class Recipe(Architecture):
    """A network and how to train it.

    The defaults are those of the paper (section 5 and appendix D), except `transformer_bounded`.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    # Descriptor
    kind: Kind = Field(default="real", description="real (unit vectors) or binary (bits)")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    prefixes: list[Annotated[int, Field(ge=MIN_PREFIX)]] | None = Field(
        default=None,
        min_length=1,
        description="lengths of prefixes of the descriptor that are trained as descriptors too, in dimensions or bits",
    )
    # Data
    split: str | None = Field(
        default=None,
        min_length=1,
        description="part of an official data set to train on: a, b or c of HPatches (its training sequences), train "
        "of RomePatches",
    )
    # Batches
    batch_size: Count = Field(default=1024, ge=2, description="M, patches per batch; each is a query over all others")
    sampling: Literal["groups", "every-group-first", "sequence-pairs", "pools"] = Field(
        default="groups",
        description="groups of all sequences, or batches from few of them; see datasets/batches/sampling.py",
    )
    views_per_group: Count | None = Field(default=None, ge=2, description="patches per group; by default all it has")
    groups_per_sequence: Count = Field(default=64, gt=0, description="groups from each sequence; sampling=pools only")
    source_weights: dict[Source, Annotated[Factor, Field(gt=0)]] | None = Field(
        default=None,
        min_length=1,
        description="weight of each source (views, static, tracks) in a batch; frame sets with sampling=pools only",
    )
    augment: bool = Field(default=False, description="flip and rotate the patches of a group, all alike")
    extent: float | None = Field(
        default=None,
        gt=0,
        le=MAX_EXTENT,
        description="extent of the patches, by default that of the set; frame sets only",
    )
    zoom: float = Field(
        default=0.0, ge=0, le=4, description="largest zoom in octaves, sampled per group; frame sets only"
    )
    padding: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the groups whose patches show half the extent, padded with their mean; surround=2 only",
    )
    jitter: float = Field(default=1.0, ge=0, le=4, description="factor on the geometric jitter; frame sets only")
    blur: float = Field(default=1.0, ge=0, le=4, description="factor on the maximum blur; frame sets only")
    compression: float = Field(
        default=0.0, ge=0, le=1, description="share of the views that are compressed as by JPEG; frame sets only"
    )
    in_sequence_negatives: bool = Field(
        default=True,
        description="patches of a query's own sequence are negatives; false ignores them (section 4.2 of the paper)",
    )
    label_mining: bool = Field(default=False, description="patches of a sequence that look alike ignore each other")
    mining_clusters: int = Field(
        default=CLUSTERS, ge=1, le=MAX_CLUSTERS, description="K, clusters per sequence; label_mining=true only"
    )
    mining_percentile: float = Field(
        default=PERCENTILE,
        ge=0,
        le=100,
        description="p, percentile of the distances between clusters up to which they ignore each other; "
        "label_mining=true only",
    )
    # Start
    initial_weights: str | None = Field(
        default=None, description="trained model to start from, by name or path; by default random weights"
    )
    # Objective
    objective: Objective = Field(default="ap", description="ap, or the objective of a baseline")
    bins: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BINS,
        description="b, histogram bins; by default 25 for real, one per bit for binary",
    )
    bin_power: Factor | None = Field(
        default=None, gt=0, description="uneven bins (10 by default), even in this power of relative squared distance"
    )
    pooled_weight: Factor = Field(default=0.0, ge=0, description="weight of the AP of all queries' pairs in one list")
    matching_weight: Factor = Field(
        default=0.0, ge=0, description="weight of the AP of all queries' matches and nearest non-matches in one list"
    )
    teacher: str | list[str] | None = Field(
        default=None, description="trained model to distil from, by name or path, or several, an ensemble"
    )
    distillation_weight: Factor = Field(default=1.0, gt=0, description="weight of the distillation loss")
    # Optimisation
    epochs: Count = Field(default=100, gt=0)
    lr: Factor = Field(default=0.1, gt=0, description="learning rate at M = 1,024; scaled linearly with M")
    schedule: Literal["linear", "steps"] = Field(
        default="linear", description="decay of the learning rate: linear to 0, or by 10 every 10 epochs"
    )
    transformer_lr_divisor: Factor = Field(
        default=100.0, ge=1, description="divides the learning rate of the Spatial Transformer's prediction layer"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: Factor = Field(default=1e-4, ge=0)
    ema_decay: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="decay of the exponential moving average of the weights, which is evaluated and saved; 0: none",
    )
    # Run
    val_fraction: float = Field(default=0.0, ge=0, lt=1, description="fraction of the scenes kept for validation")
    chunk: Count | None = Field(
        default=None, ge=4, description="patches per forward pass of the network; larger batches are split"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="of the network; auto is bf16 where the hardware multiplies it, else fp32"
    )
    compile: bool = Field(default=False, description="compile the network with torch.compile")
    seed: int = Field(default=0, ge=0, le=MAX_SEED)

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.label_mining and not self.in_sequence_negatives:
            raise ValueError(
                "label_mining supplies in-sequence negatives, but in_sequence_negatives=false ignores them"
            )
        if self.source_weights and self.sampling != "pools":
            raise ValueError(f"source_weights needs sampling=pools, not {self.sampling}")
        if not self.label_mining and (self.mining_clusters, self.mining_percentile) != (CLUSTERS, PERCENTILE):
            raise ValueError("mining_clusters and mining_percentile need label_mining=true")
        if self.kind == "binary" and self.dimensions % 8:
            raise ValueError(f"binary descriptors need dimensions that are a multiple of 8, not {self.dimensions}")
        if self.padding and self.surround != 2:
            raise ValueError("padding needs surround=2: networks of fewer extents pad no patches")
        if self.teacher == []:
            raise ValueError("teacher must name at least one model, or be null")
        self._check_prefixes()
        if self.objective == "l2net" and self.network == "hynet":
            raise ValueError("objective=l2net compares batch-normalised feature maps, but hynet normalises otherwise")
        if self.objective != "ap":
            if self.kind == "binary":
                raise ValueError(f"objective {self.objective} trains real-valued descriptors only")
            if self.pooled_weight or self.matching_weight or self.bin_power or self.bins:
                raise ValueError(
                    f"pooled_weight, matching_weight, bins and bin_power need objective=ap, not {self.objective}"
                )
        return self

    def _check_prefixes(self) -> None:
        prefixes = self.prefixes or []
        if len(set(prefixes)) < len(prefixes) or max(prefixes, default=0) >= self.dimensions:
            raise ValueError(f"prefixes must be distinct and shorter than dimensions={self.dimensions}, not {prefixes}")
        if self.kind == "binary" and any(prefix % 8 for prefix in prefixes):
            raise ValueError(f"prefixes of binary descriptors must be multiples of 8, not {prefixes}")
        if prefixes and self.objective == "l2net":
            raise ValueError("objective=l2net compares feature maps, which have no prefixes: remove prefixes")
        if prefixes and self.network.startswith("cs-l2net"):
            raise ValueError(f"{self.network} concatenates the descriptors of two networks: remove prefixes")

    @property
    def lengths(self) -> list[int]:
        """Lengths of the descriptors that are trained: those of the prefixes, ascending, and the whole."""
        return [*sorted(self.prefixes or []), self.dimensions]

    @property
    def architecture(self) -> Architecture:
        """The network alone, as recorded on a card."""
        return Architecture(**{name: getattr(self, name) for name in Architecture.model_fields})

    @property
    def jitter_factors(self) -> JitterFactors:
        """The factors of the jitter of a frame set."""
        return JitterFactors(self.jitter, self.blur, self.compression)

    @property
    def teachers(self) -> list[str]:
        """The models to distil from."""
        return [self.teacher] if isinstance(self.teacher, str) else self.teacher or []

    @property
    def mining(self) -> MiningSettings:
        """The settings of label mining."""
        return MiningSettings(self.mining_clusters, self.mining_percentile, self.seed)

    def initial_lr(self) -> float:
        """Return the learning rate at the start of the training."""
        return self.lr * self.batch_size / 1024

    def lr_at(self, epoch: int, fraction: float) -> float:
        """Return the learning rate after a fraction, in [0, 1), of an epoch."""
        if self.schedule == "steps":
            return self.initial_lr() / float(10 ** min(epoch // EPOCHS_PER_STEP, MAX_STEPS))
        return self.initial_lr() * (1 - (epoch + fraction) / self.epochs)

    def to_yaml(self) -> str:
        """Return the recipe as YAML, defaults included."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)
