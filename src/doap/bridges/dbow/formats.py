"""Files of vocabularies: ORB-SLAM's text, DBoW3's binary form, and the YAML of DBoW2 and DBoW3.

All are written with TF-IDF weighting and L1 score, nodes in the order of their ids and the root left out. Weights are
written with all digits.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.bridges.dbow.vocabulary import Vocabulary
from doap.errors import DoapError
from doap.files import atomic_file

FORB_BYTES = 32  # FORB::L of DBoW2
TF_IDF, L1_NORM = 0, 0
BINARY_SIGNATURE = 88877711233  # of DBoW3
CV_8U = 0
MIN_LIMIT, MAX_RATIO = 1 << 24, 32  # of decompressed text: bytes, and times the compressed file; numbers give 3 to 5
BLOCK = 10_000  # nodes whose numbers are Python objects at the same time
BINARY_HEAD = np.dtype([("signature", "<u8"), ("compressed", "u1"), ("nodes", "<u4"), ("settings", "<i4", 4)])
BINARY_WORD = np.dtype([("word", "<u4"), ("node", "<u4")])
YAML_NODE = re.compile(
    r"nodeId:\s*(\d+)\s*,\s*parentId:\s*(\d+)\s*,\s*weight:\s*([^,\s]+)\s*,"
    r'\s*descriptor:\s*"?(?:dbw3 0 \d+ )?([\d ]*)"?'
)
YAML_WORD = re.compile(r"wordId:\s*(\d+),\s*nodeId:\s*(\d+)")
YAML_SETTING = re.compile(r"^\s+(k|L|scoringType|weightingType):\s*(-?\d+)\s*$", re.MULTILINE)


def write_vocabulary(vocabulary: Vocabulary, path: str | Path) -> None:
    """Write a vocabulary atomically; the suffix selects the form.

    Args:
        vocabulary: The vocabulary.
        path: `.txt` for ORB-SLAM's text (also read by DBoW3), `.dbow3` for DBoW3's binary form, `.yml` or `.yml.gz` for
            the YAML of DBoW2 and DBoW3.

    Raises:
        DoapError: For another suffix; for text, which ORB-SLAM reads, also for descriptors that are not of 32 bytes.
    """
    path = Path(path)
    check_format(path, vocabulary.bytes)
    content = WRITERS[_form(path)](vocabulary)
    with atomic_file(path) as temporary:
        temporary.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def check_format(path: Path, size: int) -> None:
    """Check that descriptors of this many bytes can be written to a path.

    Raises:
        DoapError: If they cannot.
    """
    if _form(path) == ".txt" and size != FORB_BYTES:
        raise DoapError(
            f"{path}: ORB-SLAM reads descriptors of 256 bits, not of {8 * size}; use a model of 256 bits such as "
            "doap-256b, or write .dbow3 for DBoW3"
        )


def check_target(path: Path, force: bool) -> None:
    """Check that a path can be written to, and that nothing stands there unless it may be replaced.

    Raises:
        DoapError: If the path exists and `force` is not set, or it is a folder.
    """
    if path.is_dir():
        raise DoapError(f"{path}: is a folder; name a file such as {path / 'voc.txt'}")
    if path.exists() and not force:
        raise DoapError(f"{path}: exists already; choose another name, or --force to replace it")


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocabulary in one of the forms of `write_vocabulary`, for example ORB-SLAM's ORBvoc.txt.

    Raises:
        DoapError: If the file is missing, damaged or compressed by DBoW3, or has another weighting than TF-IDF or
            another score than L1.
    """
    path = Path(path)
    form = _form(path)
    try:
        content = path.read_bytes()
        content = _decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DoapError(f"{path}: cannot be read ({error})") from error
    try:
        return READERS[form](content)
    except (DoapError, ValueError, IndexError, OverflowError) as error:
        raise DoapError(f"{path}: cannot be read as a vocabulary ({error})") from error


def _decompress(content: bytes) -> bytes:
    """Decompress a file of gzip; a ValueError if it is too large for a text of numbers."""
    limit = max(MIN_LIMIT, MAX_RATIO * len(content))
    with gzip.open(io.BytesIO(content)) as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise ValueError(f"{len(content):,} bytes that decompress to more than {limit:,}")
    return text


def suffix_of(path: Path) -> str:
    """Return the last suffix of a path, with the one before if it is compressed: `.yml.gz`."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def _form(path: Path) -> str:
    """Return the suffix that names the form of a file.

    Raises:
        DoapError: For an unknown suffix.
    """
    suffix = suffix_of(path)
    form = ".yml" if suffix == ".yml.gz" else suffix
    if form not in WRITERS:
        raise DoapError(
            f"{path}: vocabularies are written as .txt (ORB-SLAM), .dbow3 (DBoW3), .yml or .yml.gz (DBoW2, DBoW3)"
        )
    return form


def _check_settings(scoring: int, weighting: int) -> None:
    if (scoring, weighting) != (L1_NORM, TF_IDF):
        raise DoapError(f"scoring {scoring} and weighting {weighting}; only L1 (0) with TF-IDF (0) is supported")


def _write_text(vocabulary: Vocabulary) -> bytes:
    """Return `k L scoring weighting`, then per node `parent is_leaf bytes… weight`.

    There is no line break at the end: ORB-SLAM's loader takes an empty last line for a node, with a parent that is not
    initialised.
    """
    lines = [f"{vocabulary.branching} {vocabulary.depth} {L1_NORM} {TF_IDF}"]
    leaves = set(vocabulary.words.tolist())
    for node, parent, weight, values in _nodes(vocabulary):
        lines.append(f"{parent} {int(node in leaves)} {values} {weight!r}")
    return "\n".join(lines).encode()


def _read_text(content: bytes) -> Vocabulary:
    head, _, body = content.partition(b"\n")
    k, levels, scoring, weighting = map(int, head.split())
    _check_settings(scoring, weighting)
    if not body.strip():
        raise DoapError("no node in it")
    values = np.loadtxt(io.BytesIO(body), np.float64, comments=None, ndmin=2)
    parents, leaves, descriptors, weights = values[:, 0], values[:, 1] > 0, values[:, 2:-1], values[:, -1]
    vocabulary = _vocabulary(k, levels, parents, descriptors, weights)
    if not np.array_equal(np.flatnonzero(leaves) + 1, vocabulary.words):
        raise DoapError("nodes marked as leaves are not those without children")
    return vocabulary


def _nodes(vocabulary: Vocabulary) -> Iterator[tuple[int, int, float, str]]:
    """Yield the id, parent, weight and numbers of the descriptor of all nodes but the root."""
    for start in range(1, len(vocabulary.parents), BLOCK):
        block = slice(start, start + BLOCK)
        columns = (vocabulary.parents, vocabulary.weights, vocabulary.descriptors)
        rows = zip(*(column[block].tolist() for column in columns), strict=True)
        for node, (parent, weight, values) in enumerate(rows, start):
            yield node, parent, weight, " ".join(map(str, values))


def _binary_node(size: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("node", "<u4"),
            ("parent", "<u4"),
            ("weight", "<f8"),
            ("columns", "<i4"),
            ("rows", "<i4"),
            ("type", "<i4"),
            ("descriptor", "u1", size),
        ]
    )


def _write_binary(vocabulary: Vocabulary) -> bytes:
    """Return DBoW3's stream, not compressed: a head, the nodes, and the number and nodes of the words."""
    settings = (vocabulary.branching, vocabulary.depth, L1_NORM, TF_IDF)
    head = np.array([(BINARY_SIGNATURE, 0, len(vocabulary.parents), settings)], BINARY_HEAD)
    nodes = np.zeros(len(vocabulary.parents) - 1, _binary_node(vocabulary.bytes))
    nodes["node"] = np.arange(1, len(vocabulary.parents))
    nodes["parent"] = vocabulary.parents[1:]
    nodes["weight"] = vocabulary.weights[1:]
    nodes["columns"], nodes["rows"], nodes["type"] = vocabulary.bytes, 1, CV_8U
    nodes["descriptor"] = vocabulary.descriptors[1:]
    words = np.zeros(len(vocabulary), BINARY_WORD)
    words["word"], words["node"] = np.arange(len(vocabulary)), vocabulary.words
    count = np.array([len(words)], "<u4")
    return b"".join(part.tobytes() for part in (head, nodes, count, words))


def _read_binary(content: bytes) -> Vocabulary:
    head = np.frombuffer(content, BINARY_HEAD, 1)[0]
    if head["signature"] != BINARY_SIGNATURE:
        raise DoapError("no binary vocabulary of DBoW3")
    if head["compressed"]:
        raise DoapError("compressed; save it from DBoW3 with save(file, false)")
    k, levels, scoring, weighting = head["settings"].tolist()
    _check_settings(scoring, weighting)
    start = BINARY_HEAD.itemsize
    size = int(np.frombuffer(content, _binary_node(0), 1, start)["columns"][0])
    nodes = np.frombuffer(content, _binary_node(size), int(head["nodes"]) - 1, start)
    if (nodes["columns"] != size).any() or (nodes["type"] != CV_8U).any():
        raise DoapError("its descriptors are not packed bits of one length")
    start += nodes.nbytes
    count = int(np.frombuffer(content, "<u4", 1, start)[0])
    words = np.frombuffer(content, BINARY_WORD, count, start + 4)
    nodes = nodes[_id_order(nodes["node"])]
    vocabulary = _vocabulary(k, levels, nodes["parent"], nodes["descriptor"], nodes["weight"])
    _check_words(vocabulary, words["word"], words["node"])
    return vocabulary


def _write_yaml(vocabulary: Vocabulary) -> bytes:
    """Return the file that OpenCV's FileStorage reads.

    Descriptors are plain numbers as of DBoW2; DBoW3 reads these beside its own, which start with "dbw3".
    """
    head = f"k: {vocabulary.branching}\n   L: {vocabulary.depth}\n   scoringType: {L1_NORM}\n   weightingType: {TF_IDF}"
    lines = [f"%YAML:1.0\n---\nvocabulary:\n   {head}\n   nodes:"]
    for node, parent, weight, values in _nodes(vocabulary):
        lines.append(
            f'      - {{ nodeId:{node}, parentId:{parent}, weight:{weight!r},\n          descriptor:"{values} " }}'
        )
    lines.append("   words:")
    lines += [f"      - {{ wordId:{word}, nodeId:{node} }}" for word, node in enumerate(vocabulary.words.tolist())]
    return ("\n".join(lines) + "\n").encode()


def _read_yaml(content: bytes) -> Vocabulary:
    text = content.decode("ascii")
    settings = {name: int(value) for name, value in YAML_SETTING.findall(text)}
    if len(settings) != 4:
        raise DoapError("no k, L, scoringType and weightingType in it")
    _check_settings(settings["scoringType"], settings["weightingType"])
    rows = YAML_NODE.findall(text)
    if not rows:
        raise DoapError("no node in it")
    order = _id_order(np.array([row[0] for row in rows], np.int64))
    parents, weights = (np.array([row[column] for row in rows], np.float64)[order] for column in (1, 2))
    descriptors = np.array([list(map(int, row[3].split())) for row in rows], np.int64)[order]
    vocabulary = _vocabulary(settings["k"], settings["L"], parents, descriptors, weights)
    words = np.array(YAML_WORD.findall(text), np.int64).reshape(-1, 2)
    _check_words(vocabulary, words[:, 0], words[:, 1])
    return vocabulary


def _id_order(nodes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the order by id of nodes that have the ids 1 to their number."""
    order = np.argsort(nodes)
    if not np.array_equal(nodes[order], np.arange(1, len(nodes) + 1)):
        raise DoapError("ids of nodes are missing or repeated")
    return order


def _check_words(vocabulary: Vocabulary, words: NDArray[np.integer], nodes: NDArray[np.integer]) -> None:
    order = np.argsort(words)
    in_order = np.array_equal(words[order], np.arange(len(vocabulary)))
    if not in_order or not np.array_equal(nodes[order], vocabulary.words):
        raise DoapError("its words are not the leaves in the order of their ids")


def _vocabulary(
    k: int,
    levels: int,
    parents: NDArray[np.number],
    descriptors: NDArray[np.number],
    weights: NDArray[np.floating],
) -> Vocabulary:
    """Return a vocabulary from the columns of all nodes but the root.

    Raises:
        DoapError: If the numbers are not those of a vocabulary.
    """
    if not descriptors.shape[1]:
        raise DoapError("its nodes have no descriptor")
    with np.errstate(invalid="ignore"):
        nodes, rows = parents.astype(np.int64), descriptors.astype(np.uint8)
    if not (np.array_equal(nodes, parents) and np.array_equal(rows, descriptors)):
        raise DoapError("its parents are not whole numbers, or its descriptors not bytes from 0 to 255")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DoapError("its weights are not all finite and at least 0")
    return Vocabulary(
        k,
        levels,
        np.concatenate([[0], nodes]),
        np.concatenate([np.zeros((1, rows.shape[1]), np.uint8), rows]),
        np.concatenate([[0], weights]).astype(np.float64),
    )


WRITERS: dict[str, Callable[[Vocabulary], bytes]] = {
    ".txt": _write_text,
    ".dbow3": _write_binary,
    ".yml": _write_yaml,
}
READERS: dict[str, Callable[[bytes], Vocabulary]] = {".txt": _read_text, ".dbow3": _read_binary, ".yml": _read_yaml}
