"""The descriptor of a frame training: what it must be, and its card if it is trained, too."""

from doap.errors import DoapError
from doap.networks.card import Card, Origin, inherit_origin
from doap.networks.descriptor import Descriptor
from doap.networks.registry import find_card
from doap.training.frames.recipe import FrameRecipe
from doap.training.run_folder import Identities, identify_weights


def check_descriptor(recipe: FrameRecipe) -> Identities:
    """Check that a recipe can be trained with its descriptor, and return the identity of the descriptor.

    Raises:
        DoapError: If the descriptor cannot be loaded, is handcrafted, or is to be trained and has no card.
    """
    identity = identify_weights("descriptor", recipe.descriptor)
    if recipe.joint and find_card(recipe.descriptor) is None:
        raise DoapError(
            f"descriptor={recipe.descriptor}: its architecture is unknown, it has no card, which "
            f"joint={recipe.joint:g} needs; make one with doap convert, or set joint=0"
        )
    return identity


def rename_tuned(descriptor: Descriptor, name: str) -> Descriptor:
    """Return a tuned descriptor under a name of its own, without prefixes, because only the whole length was tuned."""
    return Descriptor(descriptor.network, descriptor.kind, descriptor.extent, name, descriptor.extents)


def derive_origin(base: Card, identity: Identities, origin: Origin) -> Origin:
    """Return the provenance of a tuned descriptor, see `inherit_origin`.

    Args:
        base: Card of the model that was tuned.
        identity: Its identity.
        origin: Provenance of the frame training.
    """
    training_sets = [*origin.training_sets, *base.origin.training_sets]
    notes = {**origin.notes, "initial_weights": identity}
    return inherit_origin(
        base.origin, origin.model_copy(update={"training_sets": training_sets, "figures": {}, "notes": notes})
    )
