"""Files of vocabularies, read by the rules of the loaders of ORB-SLAM, DBoW2 and DBoW3."""

import gzip
import struct
import tracemalloc
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from doap import DoapError
from doap.bridges.dbow import Vocabulary, read_vocabulary, train_vocabulary, write_vocabulary
from doap.bridges.dbow.building import default_features

Bits = NDArray[np.uint8]
Node = tuple[int, bytes, float]
"""Parent, descriptor and weight of a node."""

HUGE_NODE = b'- { nodeId:99999999999999999999, parentId:0, weight:1.0, descriptor:"1 2 " }\n'
FORMS = ("voc.txt", "voc.dbow3", "voc.yml", "voc.yml.gz")


def load_text(path: Path) -> tuple[list[int], dict[int, Node], list[int]]:
    """Read k, L, scoring, weighting; the nodes by id; the node of each word: as ORB-SLAM's loadFromTextFile."""
    lines = path.read_text().split("\n")  # an empty string after a line break at the end is a node there
    nodes: dict[int, Node] = {}
    words = []
    for line in lines[1:]:
        values = line.split()
        node = len(nodes) + 1
        nodes[node] = int(values[0]), bytes(map(int, values[2:34])), float(values[34])
        assert len(values) == 35
        assert nodes[node][0] < node
        if int(values[1]) > 0:
            words.append(node)
    return list(map(int, lines[0].split())), nodes, words


def load_binary(path: Path) -> tuple[list[int], dict[int, Node], list[int]]:
    """Read the same as DBoW3's fromStream."""
    content = path.read_bytes()
    place = 0

    def read(form: str) -> tuple[int, ...]:
        nonlocal place
        values = struct.unpack_from("<" + form, content, place)
        place += struct.calcsize("<" + form)
        return values

    signature, compressed, count = read("Q?I")
    assert (signature, compressed) == (88877711233, False)
    head = list(read("4i"))
    nodes: dict[int, Node] = {}
    for _ in range(count - 1):
        node, parent = read("2I")
        (weight,) = read("d")
        columns, rows, kind = read("3i")
        assert (rows, kind) == (1, 0)
        (descriptor,) = struct.unpack_from(f"{columns}s", content, place)
        place += columns
        nodes[node] = parent, descriptor, weight
    words = [read("2I") for _ in range(read("I")[0])]
    assert place == len(content)
    assert [word for word, _ in words] == list(range(len(words)))
    return head, nodes, [node for _, node in words]


def load_yaml(path: Path) -> tuple[list[int], dict[int, Node], list[int]]:
    """Read the same with OpenCV's FileStorage, as DBoW2 and DBoW3 do."""
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    root = storage.getNode("vocabulary")
    head = [int(root.getNode(name).real()) for name in ("k", "L", "scoringType", "weightingType")]
    nodes: dict[int, Node] = {}
    listed, words = root.getNode("nodes"), root.getNode("words")
    for index in range(listed.size()):
        item = listed.at(index)
        descriptor = bytes(map(int, item.getNode("descriptor").string().split()))
        nodes[int(item.getNode("nodeId").real())] = (
            int(item.getNode("parentId").real()),
            descriptor,
            item.getNode("weight").real(),
        )
    pairs = [tuple(int(words.at(i).getNode(n).real()) for n in ("wordId", "nodeId")) for i in range(words.size())]
    assert [word for word, _ in pairs] == list(range(len(pairs)))
    storage.release()
    return head, nodes, [node for _, node in pairs]


LOADERS = dict(zip(FORMS, (load_text, load_binary, load_yaml, load_yaml), strict=True))


def same(first: Vocabulary, second: Vocabulary) -> bool:
    arrays = ("parents", "descriptors", "weights", "words")
    return (first.branching, first.depth) == (second.branching, second.depth) and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in arrays
    )


@pytest.mark.parametrize("name", FORMS)
def test_files_hold_the_tree(tmp_path: Path, vocabulary: Vocabulary, name: str) -> None:
    write_vocabulary(vocabulary, tmp_path / name)
    head, nodes, words = LOADERS[name](tmp_path / name)
    assert head == [5, 3, 0, 0]
    assert list(nodes) == list(range(1, len(vocabulary.parents)))
    for node, (parent, descriptor, weight) in nodes.items():
        assert parent == vocabulary.parents[node]
        assert descriptor == vocabulary.descriptors[node].tobytes()
        assert weight == vocabulary.weights[node]  # to the last bit
    assert words == vocabulary.words.tolist()
    assert set(words) == set(nodes) - {parent for parent, _, _ in nodes.values()}
    assert {weight for node, (_, _, weight) in nodes.items() if node not in words} == {0.0}


@pytest.mark.parametrize("name", FORMS)
def test_files_are_read_again(tmp_path: Path, vocabulary: Vocabulary, name: str) -> None:
    write_vocabulary(vocabulary, tmp_path / name)
    assert same(read_vocabulary(tmp_path / name), vocabulary)
    content = (tmp_path / name).read_bytes()
    write_vocabulary(vocabulary, tmp_path / name)
    assert (tmp_path / name).read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_text_of_orb_slam_is_read(tmp_path: Path, vocabulary: Vocabulary) -> None:
    # saveToTextFile: two spaces, six digits of the weights, and a line break at the end.
    lines = ["5 3  0 0"]
    for node in range(1, len(vocabulary.parents)):
        numbers = "".join(f"{value} " for value in vocabulary.descriptors[node])
        leaf = int(node in vocabulary.words)
        lines.append(f"{vocabulary.parents[node]} {leaf} {numbers} {vocabulary.weights[node]:.6g}")
    (tmp_path / "voc.txt").write_text("\n".join(lines) + "\n")
    loaded = read_vocabulary(tmp_path / "voc.txt")
    np.testing.assert_array_equal(loaded.descriptors, vocabulary.descriptors)
    np.testing.assert_allclose(loaded.weights, vocabulary.weights, rtol=1e-5)


def test_yaml_of_dbow3_is_read(tmp_path: Path, vocabulary: Vocabulary) -> None:
    # Written by FileStorage, which wraps lines; descriptors as of DBoW3; nodes last in, first out.
    storage = cv2.FileStorage(str(tmp_path / "voc.yml"), cv2.FILE_STORAGE_WRITE)
    storage.startWriteStruct("vocabulary", cv2.FILE_NODE_MAP)
    for name, value in (("k", 5), ("L", 3), ("scoringType", 0), ("weightingType", 0)):
        storage.write(name, value)
    storage.startWriteStruct("nodes", cv2.FILE_NODE_SEQ)
    for node in range(len(vocabulary.parents) - 1, 0, -1):
        storage.startWriteStruct("", cv2.FILE_NODE_MAP | cv2.FILE_NODE_FLOW)
        storage.write("nodeId", node)
        storage.write("parentId", int(vocabulary.parents[node]))
        storage.write("weight", float(vocabulary.weights[node]))
        storage.write("descriptor", "dbw3 0 32 " + "".join(f"{value} " for value in vocabulary.descriptors[node]))
        storage.endWriteStruct()
    storage.endWriteStruct()
    storage.startWriteStruct("words", cv2.FILE_NODE_SEQ)
    for word, node in enumerate(vocabulary.words.tolist()):
        storage.startWriteStruct("", cv2.FILE_NODE_MAP | cv2.FILE_NODE_FLOW)
        storage.write("wordId", word)
        storage.write("nodeId", node)
        storage.endWriteStruct()
    storage.endWriteStruct()
    storage.endWriteStruct()
    storage.release()
    assert same(read_vocabulary(tmp_path / "voc.yml"), vocabulary)


def test_dbow3_takes_any_length(tmp_path: Path) -> None:
    images = list(np.random.default_rng(0).integers(0, 256, (3, 40, 17), np.uint8))
    vocabulary = train_vocabulary(images, k=3, levels=2)
    for name in FORMS[1:]:
        write_vocabulary(vocabulary, tmp_path / name)
        assert same(read_vocabulary(tmp_path / name), vocabulary)
    with pytest.raises(DoapError, match=r"voc.txt: ORB-SLAM reads descriptors of 256 bits, not of 136"):
        write_vocabulary(vocabulary, tmp_path / "voc.txt")
    assert not (tmp_path / "voc.txt").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("voc.txt", b"", "cannot be read as a vocabulary"),
        ("voc.txt", b"10 6 0 0", "no node in it"),
        ("voc.txt", b"10 6 0 0\n0 1 1.0", "its nodes have no descriptor"),
        ("voc.txt", b"10 6 1 0\n", "scoring 1 and weighting 0"),
        ("voc.txt", b"10 6 0 0\n0 1 " + b"1 " * 32 + b"0.5\n0 1 1 1", "cannot be read"),
        ("voc.txt", b"10 6 0 0\n7 1 " + b"1 " * 32 + b"0.5", "a parent before it"),
        ("voc.txt", b"10 6 0 0\n0 0 " + b"1 " * 32 + b"0.5", "marked as leaves"),
        ("voc.txt", b"\xff\xfe", "cannot be read"),
        ("voc.txt", b"10 6 0 0\n0 1 " + b"256 " * 32 + b"0.5", "not bytes from 0 to 255"),
        ("voc.txt", b"10 6 0 0\n0.5 1 " + b"1 " * 32 + b"0.5", "parents are not whole numbers"),
        ("voc.txt", b"10 6 0 0\n0 1 " + b"1 " * 32 + b"nan", "weights are not all finite"),
        ("voc.dbow3", b"short", "cannot be read"),
        ("voc.dbow3", bytes(64), "no binary vocabulary of DBoW3"),
        ("voc.dbow3", struct.pack("<Q?I4i", 88877711233, True, 3, 10, 6, 0, 0), "compressed; save it from DBoW3"),
        ("voc.dbow3", struct.pack("<Q?I4i", 88877711233, False, 3, 10, 6, 0, 0), "cannot be read"),
        ("voc.yml", b"%YAML:1.0\n---\nvocabulary:\n   k: 10\n", "no k, L"),
        ("voc.yml", b"\n k: 1\n L: 1\n scoringType: 0\n weightingType: 0\n" + HUGE_NODE, "cannot be read as a"),
        ("voc.yml.gz", b"no gzip", "cannot be read"),
        ("voc.yml.gz", gzip.compress(b"k: 10", mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
        ("voc.bin", b"", "vocabularies are written as"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DoapError, match=message) as raised:
        read_vocabulary(tmp_path / name)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_a_small_file_that_decompresses_to_much_is_refused_in_little_memory(tmp_path: Path) -> None:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [compressor.compress(b" " * (1 << 20)) for _ in range(200)]
    (tmp_path / "voc.yml.gz").write_bytes(b"".join([*parts, compressor.flush()]))
    tracemalloc.start()
    with pytest.raises(DoapError, match=r"voc\.yml\.gz: cannot be read \([\d,]+ bytes that decompress to more than"):
        read_vocabulary(tmp_path / "voc.yml.gz")
    assert tracemalloc.get_traced_memory()[1] < 60 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("name", FORMS[:3])
def test_truncated_files_are_refused(tmp_path: Path, vocabulary: Vocabulary, name: str) -> None:
    write_vocabulary(vocabulary, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for share in (0.3, 0.6, 0.999):
        (tmp_path / name).write_bytes(content[: int(share * len(content))])
        with pytest.raises(DoapError, match="cannot be read"):
            read_vocabulary(tmp_path / name)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"nowhere.txt: cannot be read \(.*No such file"):
        read_vocabulary(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("suffix", [".txt", ".dbow3", ".yml", ".yml.gz"])
def test_features_are_named_without_the_suffix_of_the_form(suffix: str) -> None:
    assert default_features(Path(f"out/voc{suffix}")) == Path("out/voc-features")
    assert default_features(Path(f"out/voc.v2{suffix}")) == Path("out/voc.v2-features")
