"""YAML that others have written: every fault is a ValueError, and size, depth and repetition are bounded.

Values are those of JSON. A date is text, as in YAML 1.2. Aliases are allowed up to a total size: nested ones multiply.
A key that is repeated in a mapping is refused; PyYAML would use the last value.
"""

from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 18  # PyYAML reads about 200 kB per second
MAX_DEPTH = 32
MAX_VALUES = 100_000
MAX_INTEGER = 2**64 - 1
MAX_QUOTE = 80  # characters of a key that an error repeats


class _Loader(yaml.SafeLoader):
    """YAML's safe types without dates."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as in the base class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not UTF-8, not YAML, repeats a key, has values that JSON does not have, or is nested too
            deeply or too large; the message is one line.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 10} KiB")
    return parse_yaml(content.decode())


def parse_yaml(text: str) -> Any:
    """Parse YAML; the errors are those of `read_yaml`.

    Example:
        >>> parse_yaml("{lr: 0.1, since: 2001-01-01}")
        {'lr': 0.1, 'since': '2001-01-01'}
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 10} KiB")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {})
        value = _construct(loader, node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    _check_values(value)
    return value


def _construct(loader: _Loader, node: yaml.Node) -> Any:
    try:
        return loader.construct_document(node)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # raised by the constructors of the tags
        raise ValueError("a value does not fit its tag, or is a number of too many digits") from error


def _measure(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the number of values below a node and their depth, aliases resolved.

    Args:
        node: The node.
        known: Results of the nodes that were visited, by identity; zeros for those that are being visited.
    """
    if id(node) in known:
        if known[id(node)] == (0, 0):
            raise ValueError("an alias contains itself")
        return known[id(node)]
    known[id(node)] = 0, 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _check_keys([key for key, _ in node.value])
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    count, depth = 1, 0
    for child in children:
        below, levels = _measure(child, known)
        count, depth = count + below, max(depth, levels + 1)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if count > MAX_VALUES:
        raise ValueError(f"has more than {MAX_VALUES:,} values, aliases included")
    known[id(node)] = count, depth
    return count, depth


def _check_keys(keys: list[yaml.Node]) -> None:
    """Check that no key of a mapping is repeated; keys that are merged into it may be."""
    known: set[tuple[str, str]] = set()
    for key in keys:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        if (key.tag, key.value) in known:
            name = " ".join(key.value.split())[:MAX_QUOTE]
            raise ValueError(f"the key {name} is repeated, in line {key.start_mark.line + 1}")
        known.add((key.tag, key.value))


def _check_values(value: Any) -> None:
    """Check that all values are those of JSON, with integers of up to 64 bits."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key)
            _check_values(item)
    elif isinstance(value, list):
        for item in value:
            _check_values(item)
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("an integer has more than 64 bits")
    elif not isinstance(value, str | bool | int | float | None):
        raise ValueError(f"values of type {type(value).__name__} are not allowed")
