"""Models in folders as Hugging Face's hub has them: `model.safetensors`, `config.json` and `README.md`.

The weights are those of the model, byte for byte, and `config.json` is its card: `doap.load` and every command read
the folder like a .safetensors file. Pickles are never read.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from doap.errors import DoapError, check_path
from doap.files import atomic_folder
from doap.networks import split_length, with_length
from doap.networks.card import HUB_CARD, HUB_WEIGHTS, Card, read_card
from doap.networks.descriptor import Descriptor
from doap.networks.registry import find_card, find_weights, load, serialize_weights

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

LICENCES = (
    *("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "unlicense", "mpl-2.0"),
    *("gpl-2.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0"),
    *("cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"),
)
"""Identifiers of licences that the hub shares with SPDX, in lower case; others are "other" with a name."""


def save_pretrained(model: str | Path, folder: str | Path) -> Path:
    """Write a model to a new folder that `from_pretrained`, `doap.load` and Hugging Face's libraries read.

    Args:
        model: Name of a shipped model, or path of its .safetensors file with its card, as `doap.load` takes it;
            `doap.save` writes those of a model in memory. NAME@64 writes a prefix, as a model of its own.
        folder: Folder to create.

    Returns:
        The folder.

    Raises:
        DoapError: If there is no such model, its files do not agree, or the folder exists.

    Example:
        >>> import doap, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_pretrained("doap-demo-128", f"{folder}/doap-demo-128")
        ...     print(sorted(file.name for file in path.iterdir()), doap.load(path).name)
        ['README.md', 'config.json', 'model.safetensors'] doap-demo-128
    """
    check_path("the folder", folder)
    with atomic_folder(Path(folder)) as temporary:
        _write_folder(model, temporary)
    return Path(folder)


def from_pretrained(
    folder_or_repo_id: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    token: str | bool | None = None,
    device: str | torch.device = "cpu",
    fast: bool = True,
    int8: bool = False,
    dimensions: int | None = None,
) -> Descriptor:
    """Load a model from a folder of `save_pretrained`, or from a repository of Hugging Face's hub.

    Args:
        folder_or_repo_id: Path of a folder, or id of a repository, "owner/name". With @64 at its end, the same as
            with `dimensions=64`.
        revision: Branch, tag or commit of the repository.
        cache_dir: Folder of downloads, by default that of huggingface_hub.
        local_files_only: Whether to take the files from the cache without asking the hub; so does HF_HUB_OFFLINE=1.
        token: Token for private repositories, by default that of `hf auth login`.
        device: As in `doap.load`, like the arguments below.
        fast: Whether to return the fastest form for inference.
        int8: Whether to compute with 8-bit integers.
        dimensions: Length of the descriptor, for a model whose prefixes were trained.

    Raises:
        DoapError: If there is no such folder or repository, it holds no model of doap, its files do not agree, or two
            different lengths are named.
    """
    check_path("the folder or repository", folder_or_repo_id)
    name, length = split_length(with_length(str(folder_or_repo_id), dimensions))
    if Path(name).exists():
        return load(name, device, fast, int8, length)
    from huggingface_hub import snapshot_download

    with _hub_errors(f"{name}: no such folder, and not loaded from the hub"):
        folder = snapshot_download(
            name,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=[HUB_CARD, HUB_WEIGHTS],
        )
    return load(folder, device, fast, int8, length)


def push_to_hub(
    model: str | Path,
    repo_id: str,
    *,
    revision: str | None = None,
    private: bool | None = None,
    commit_message: str | None = None,
    create_pr: bool = False,
    token: str | bool | None = None,
) -> str:
    """Upload a model to a repository of Hugging Face's hub, which is created if it does not exist.

    Args:
        model: Name or path of the model, as in `save_pretrained`.
        repo_id: "owner/name".
        revision: Branch to commit to.
        private: Whether a new repository is private; None for the default of its owner.
        commit_message: First line of the commit.
        create_pr: Whether to open a pull request instead of committing.
        token: Token with the right to write, by default that of `hf auth login`.

    Returns:
        URL of the commit.

    Raises:
        DoapError: If there is no such model, or the hub cannot be reached or refuses it.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as name:
        card = _write_folder(model, Path(name), repo_id)
        with _hub_errors(f"{repo_id}: not uploaded"):
            api.create_repo(repo_id, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=name,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message or f"Upload {card.name}",
            )
    return str(commit.commit_url)


def _write_folder(model: str | Path, folder: Path, repo_id: str | None = None) -> Card:
    """Write the files of a model to an existing folder, and return its card."""
    if not isinstance(model, str | Path):
        raise DoapError(
            f"the model must be the name or path that doap.load takes, not {type(model).__name__}; "
            "doap.save writes a model in memory"
        )
    card = find_card(str(model))
    if card is None:
        raise DoapError(f"{model}: a baseline without a card; write one with doap convert")
    descriptor, weights = load(model, fast=False), find_weights(str(model))  # refuses files that do not agree
    # Not by their names: that of a whole model may end in a length, too.
    is_whole = descriptor.network.dimensions == read_card(weights).architecture.dimensions
    content = weights.read_bytes() if is_whole else serialize_weights(descriptor)
    card = card.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    (folder / HUB_WEIGHTS).write_bytes(content)
    (folder / HUB_CARD).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_readme(card, repo_id or f"OWNER/{card.name}"), encoding="utf-8")
    return card


def _readme(card: Card, repo_id: str) -> str:
    """Return the page of a model on the hub: metadata in YAML, use, figures, training data and limits."""
    origin = card.origin
    length = card.architecture.dimensions
    what = f"{length} bits" if card.kind == "binary" else f"{length} dimensions, real-valued"
    extents = ", ".join(f"{value:g} for {name}" for name, value in card.extents.items())
    sources = [f"| {item.source} | {item.licence} | {item.photos:,} |" for item in origin.sources]
    sections = [
        f"---\n{_metadata(card).to_yaml()}\n---\n",
        f"# {card.name}\n\nLocal image descriptor ({what}) trained by optimising Average Precision directly.\n",
        f"""```python
import doap
from doap.bridges.hub import from_pretrained

model = from_pretrained("{repo_id}")
first, second = doap.detect_and_describe(["left.jpg", "right.jpg"], model)
matches = doap.match(first, second)
```
""",
        f"Patches of {card.input_size}x{card.input_size} grey values in 0..255. Extent, half the side of a patch in "
        f"units of the frame's scale: {card.extent:g}{'; ' + extents if extents else ''}.\n",
        f"Licence: {origin.licence_with_photos or 'not stated'}\n",
    ]
    if origin.figures:
        rows = "\n".join(f"| {name} | {value:g} |" for name, value in origin.figures.items())
        sections.append(f"## Figures\n\n| | |\n|---|---:|\n{rows}\n")
    if origin.data:
        sections.append(f"## Training data\n\n{origin.data}\n")
    if sources:
        sections.append("\n".join(["| source | licence | photos |", "|---|---|---:|", *sources, ""]))
    if limits := origin.notes.get("limits"):
        sections.append(f"## Limits\n\n{limits}\n")
    return "\n".join(sections)


def _metadata(card: Card) -> "ModelCardData":
    from huggingface_hub import ModelCardData

    licence = "-".join(card.origin.licence.lower().split()) or "unknown"
    is_known = licence in LICENCES
    return ModelCardData(
        license=licence if is_known else "other",
        license_name=None if is_known else licence,
        library_name="doap",
        pipeline_tag="image-feature-extraction",
        tags=["local-features", "image-matching", "keypoint-description", card.kind],
    )


@contextmanager
def _hub_errors(what: str) -> Iterator[None]:
    """Turn the errors of huggingface_hub into one line."""
    try:
        yield
    except Exception as error:  # its HTTP library differs between versions, and with it the classes of its errors
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise DoapError(f"{what} ({lines[0] if lines else type(error).__name__})") from error
