"""Methods that the page offers, in all tabs."""

from functools import lru_cache

from doap.app.settings import AppSettings
from doap.errors import DoapError
from doap.networks import DEFAULT_MODEL
from doap.networks.descriptor import Descriptor
from doap.networks.registry import list_models, load

BASELINES = {"rootsift": "RootSIFT", "sift": "SIFT", "orb": "ORB"}
"""Labels of the handcrafted methods."""

MAX_METHODS = 3  # side by side
LOADED = 8  # models that are kept in memory


def list_methods(settings: AppSettings) -> list[str]:
    """Return the names of all methods: shipped models, baselines, and those that `doap app --model` named."""
    names = [*list_models(), *BASELINES, *settings.models]
    return list(dict.fromkeys(names))


def open_models(settings: AppSettings) -> None:
    """Load the models that `doap app --model` named.

    Raises:
        DoapError: If one cannot be loaded.
    """
    for name in settings.models:
        open_method(name, settings.device)


def default_methods(settings: AppSettings) -> list[str]:
    """Return the methods that are selected first: the default model, its binary form if it ships, and RootSIFT."""
    names = (DEFAULT_MODEL, "doap-256b", "rootsift")
    return [name for name in names if name in list_methods(settings)]


def label_method(name: str) -> str:
    """Return the name of a method as the page shows it."""
    return BASELINES.get(name, name)


@lru_cache(LOADED)
def open_method(name: str, device: str) -> Descriptor:
    """Load a method; the last ones are kept."""
    return load(name, device)


def check_methods(names: list[str], settings: AppSettings) -> None:
    """Check a choice of methods.

    Raises:
        DoapError: If it is empty, too long, or names something that the page does not offer.
    """
    if not 1 <= len(names) <= MAX_METHODS:
        raise DoapError(f"choose one to {MAX_METHODS} methods, not {len(names)}")
    for name in names:
        if name not in list_methods(settings):
            raise DoapError(f"{name}: not a method of this page; offer it with doap app --model")
