"""DBoW2 as compiled into ORB-SLAM3, called in a process of its own: `real_dbow2.py LIBRARY VOCABULARY IMAGES RESULT`.

Library: libORB_SLAM3 of the package orbslam3-python, whose folder must be on LD_LIBRARY_PATH. The package exports no
vocabulary to Python; its C++ symbols are called by their names, with objects laid out as libstdc++ and OpenCV 4 do.
Result: an archive with the word and weight of each descriptor, the bags of words and the scores of the images.
"""

import ctypes
import sys
from ctypes import byref, c_char_p, c_double, c_int, c_size_t, c_uint, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASS = "_ZN5DBoW219TemplatedVocabularyIN2cv3MatENS_4FORBEE"
CONST = "_ZNK5DBoW219TemplatedVocabularyIN2cv3MatENS_4FORBEE"
STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
TABLE = "_ZTVN5DBoW219TemplatedVocabularyIN2cv3MatENS_4FORBEEE"
BAG = "9transformERKSt6vectorIS2_SaIS2_EERNS_9BowVectorE"
CONTINUOUS_8U = 0x42FF4000  # flags of a cv::Mat


class Text(ctypes.Structure):
    """std::string that is not changed."""

    _fields_ = (("data", c_char_p), ("size", c_size_t), ("capacity", c_size_t), ("padding", c_size_t))


class Mat(ctypes.Structure):
    """cv::Mat of one row of bytes that others own."""

    _fields_ = (
        ("flags", c_int),
        ("dims", c_int),
        ("rows", c_int),
        ("cols", c_int),
        ("data", c_void_p),
        ("datastart", c_void_p),
        ("dataend", c_void_p),
        ("datalimit", c_void_p),
        ("allocator", c_void_p),
        ("u", c_void_p),
        ("size", c_void_p),
        ("step", c_void_p),
        ("step_buffer", c_size_t * 2),
    )


class Vector(ctypes.Structure):
    """std::vector."""

    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p))


class VocabularyObject(ctypes.Structure):
    """TemplatedVocabulary as after its constructor."""

    _fields_ = (
        ("vtable", c_void_p),
        ("k", c_int),
        ("L", c_int),
        ("weighting", c_int),
        ("scoring", c_int),
        ("scoring_object", c_void_p),
        ("nodes", Vector),
        ("words", Vector),
    )


class Map(ctypes.Structure):
    """std::map; its first node has the smallest key."""

    _fields_ = (
        ("compare", c_size_t),
        ("color", c_size_t),
        ("parent", c_void_p),
        ("left", c_void_p),
        ("right", c_void_p),
        ("count", c_size_t),
    )


class BowNode(ctypes.Structure):
    """Node of a std::map<unsigned int, double>."""

    _fields_ = (
        ("color", c_size_t),
        ("parent", c_void_p),
        ("left", c_void_p),
        ("right", c_void_p),
        ("word", c_uint),
        ("value", c_double),
    )


def text(value: str) -> Text:
    data = value.encode()
    return Text(data, len(data), len(data), 0)


def mats(descriptors: NDArray[np.uint8]) -> Any:
    """Return one Mat per row; the rows must outlive them."""
    count, size = descriptors.shape
    rows = (Mat * count)()
    for index, row in enumerate(rows):
        start = descriptors.ctypes.data + index * size
        row.flags, row.dims, row.rows, row.cols = CONTINUOUS_8U, 2, 1, size
        row.data = row.datastart = start
        row.dataend = row.datalimit = start + size
        row.size = ctypes.addressof(row) + Mat.rows.offset
        row.step = ctypes.addressof(row) + Mat.step_buffer.offset
        row.step_buffer[0], row.step_buffer[1] = size, 1
    return rows


def vector(items: Any) -> Vector:
    start = ctypes.addressof(items)
    result = Vector(start, start + ctypes.sizeof(items), start + ctypes.sizeof(items))
    result.items = items  # keeps them in memory
    return result


def empty_map() -> Map:
    tree = Map()
    tree.left = tree.right = ctypes.addressof(tree) + Map.color.offset
    return tree


def entries(address: int | None) -> list[tuple[int, float]]:
    """Return the entries below a node of a map, in the order of their keys."""
    if not address:
        return []
    node = BowNode.from_address(address)
    return [*entries(node.left), (node.word, node.value), *entries(node.right)]


class Dbow2:
    """A vocabulary of the library."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self.object = VocabularyObject(k=10, L=5)
        # The first two entries of a table of virtual functions are not functions.
        self.object.vtable = ctypes.addressof(ctypes.c_char.in_dll(self.library, TABLE)) + 16
        self.call(CLASS + "19createScoringObjectEv")

    def call(self, name: str, *arguments: Any, result: Any = None) -> Any:
        function = self.library[name]
        function.restype = result
        return function(byref(self.object), *arguments)

    def load(self, path: str) -> None:
        if path.endswith(".txt"):
            if not self.call(CLASS + "16loadFromTextFileE" + STRING, byref(text(path)), result=ctypes.c_bool):
                sys.exit("not loaded")
            return
        storage = ctypes.create_string_buffer(1024)
        self.library["_ZN2cv11FileStorageC1E" + STRING + "iS8_"](byref(storage), byref(text(path)), 0, byref(text("")))
        self.call(CLASS + "4loadERKNS1_11FileStorageE" + STRING, byref(storage), byref(text("vocabulary")))

    def find(self, descriptors: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the word and weight of each descriptor."""
        word, weight, found = c_uint(), c_double(), []
        for row in mats(descriptors):
            self.call(CONST + "9transformERKS2_RjRdPji", byref(row), byref(word), byref(weight), None, 0)
            found.append((word.value, weight.value))
        return np.array(found)

    def bag(self, descriptors: NDArray[np.uint8]) -> Map:
        tree, rows = empty_map(), vector(mats(descriptors))
        self.call(CONST + BAG, byref(rows), byref(tree))
        return tree

    def score(self, first: Map, second: Map) -> float:
        function = self.library["_ZNK5DBoW29L1Scoring5scoreERKNS_9BowVectorES3_"]
        function.restype = c_double
        return float(function(c_void_p(self.object.scoring_object), byref(first), byref(second)))


def main(library: str, vocabulary: str, images: str, result: str) -> None:
    with np.load(images) as archive:
        descriptors = [np.ascontiguousarray(archive[name]) for name in archive]
    dbow2 = Dbow2(library)
    dbow2.load(vocabulary)
    bags = [dbow2.bag(rows) for rows in descriptors]
    node_size = 8 + 8 + 24 + 8 + ctypes.sizeof(Mat) + 8  # id, weight, children, parent, descriptor, word
    nodes = dbow2.object.nodes
    np.savez(
        result,
        nodes=(nodes.end - nodes.begin) // node_size,
        words=dbow2.call(CONST + "4sizeEv", result=c_uint),
        found=dbow2.find(np.concatenate(descriptors)),
        bags=np.concatenate([np.array(entries(bag.parent)).reshape(-1, 2) for bag in bags]),
        bag_sizes=[bag.count for bag in bags],
        scores=[[dbow2.score(first, second) for second in bags] for first in bags],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
