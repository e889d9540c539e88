from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.datasets.official.image_sequences import ImageSequence, find_sequences, read_homography, read_sequence
from doap.images.reading import read_grey

MAPS = [np.array([[1, 0.01 * n, 5 * n], [0, 1 + 0.1 * n, -n], [1e-5 * n, 0, 1]]) for n in range(2, 7)]

XML = """<?xml version="1.0"?>
<opencv_storage>
<H12 type_id="opencv-matrix"><rows>3</rows><cols>3</cols><dt>d</dt><data>{}</data></H12>
<H21 type_id="opencv-matrix"><rows>3</rows><cols>3</cols><dt>d</dt><data>9 9 9 9 9 9 9 9 9</data></H21>
</opencv_storage>
"""


def write_oxford(folder: Path, suffix: str, xml: bool) -> None:
    folder.mkdir(parents=True)
    for number in range(1, 7):
        Image.new("L", (8, 6)).save(folder / f"img{number}{suffix}")
    for number, values in enumerate(MAPS, 2):
        text = "\n".join("  ".join(f"{v:.10e}" for v in row) for row in values)
        if xml:
            (folder / f"H1to{number}p.xml").write_text(XML.format(text))
        else:
            (folder / f"H1to{number}p").write_text(text + "\n")


def write_hpatches(folder: Path, suffix: str = ".ppm") -> None:
    folder.mkdir(parents=True)
    for number in range(1, 7):
        Image.new("RGB", (8, 6)).save(folder / f"{number}{suffix}")
    for number, values in enumerate(MAPS, 2):
        (folder / f"H_1_{number}").write_text("\n".join(" ".join(f"{v:.8g}" for v in row) for row in values))


@pytest.mark.parametrize("xml", [True, False])
@pytest.mark.parametrize("suffix", [".png", ".ppm", ".pgm"])
def test_oxford_in_every_format(tmp_path: Path, suffix: str, xml: bool) -> None:
    write_oxford(tmp_path / "graf", suffix, xml)
    sequence = read_sequence(tmp_path / "graf")
    assert sequence.name == "graf"
    assert [p.name for p in sequence.images] == [f"img{n}{suffix}" for n in range(1, 7)]
    np.testing.assert_allclose(sequence.homographies, [np.eye(3), *MAPS], rtol=1e-9)


def test_hpatches(tmp_path: Path) -> None:
    write_hpatches(tmp_path / "v_wall")
    sequence = read_sequence(tmp_path / "v_wall")
    assert [p.name for p in sequence.images] == [f"{n}.ppm" for n in range(1, 7)]
    np.testing.assert_allclose(sequence.homographies, [np.eye(3), *MAPS], rtol=1e-7)


def test_all_sequences_below_a_folder(tmp_path: Path) -> None:
    write_oxford(tmp_path / "b" / "oxford" / "graf", ".png", xml=True)
    write_hpatches(tmp_path / "a" / "v_wall")
    (tmp_path / "album").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "album" / "1.png")  # numbered photos are not yet a sequence
    assert [s.name for s in find_sequences(tmp_path)] == ["v_wall", "graf"]
    assert [s.name for s in find_sequences(tmp_path / "a" / "v_wall")] == ["v_wall"]
    with pytest.raises(DoapError, match="album: no image sequence in it or below"):
        find_sequences(tmp_path / "album")
    with pytest.raises(DoapError, match="nowhere: no such folder"):
        find_sequences(tmp_path / "nowhere")


def test_the_homographies_are_as_opencv_reads_them(oxford: Path) -> None:
    sequences = find_sequences(oxford)
    assert [s.name for s in sequences] == ["bark", "bikes", "boat", "graf", "leuven", "trees", "ubc", "wall"]
    for sequence in sequences:
        for number in range(2, 7):
            store = cv2.FileStorage(str(oxford / sequence.name / f"H1to{number}p.xml"), cv2.FILE_STORAGE_READ)
            first = store.root().keys()[0]
            np.testing.assert_array_equal(sequence.homographies[number - 1], store.getNode(first).mat())


def agreement(sequence: ImageSequence, number: int) -> float:
    """Compute the correlation of image i, warped back, with the reference, where both are visible."""
    first, other = read_grey(sequence.images[0]), read_grey(sequence.images[number])
    inverse = np.linalg.inv(sequence.homographies[number])
    warped = cv2.warpPerspective(other, inverse, first.shape[::-1])
    visible = cv2.warpPerspective(np.full_like(other, 255), inverse, first.shape[::-1]) == 255
    smooth = [cv2.GaussianBlur(image, (0, 0), 3)[visible].astype(float) for image in (first, warped)]
    return float(np.corrcoef(*smooth)[0, 1])


def test_the_homographies_map_the_reference_into_the_images(oxford: Path, hpatches_sequences: Path) -> None:
    for sequence in [read_sequence(oxford / "graf"), read_sequence(hpatches_sequences / "v_churchill")]:
        assert agreement(sequence, 1) > 0.85
        wrong = ImageSequence(sequence.name, sequence.images, np.linalg.inv(sequence.homographies).astype(np.float64))
        assert agreement(wrong, 1) < 0.5


def test_hpatches_sequences(hpatches_sequences: Path) -> None:
    sequences = find_sequences(hpatches_sequences)
    assert [s.name for s in sequences] == ["v_churchill", "v_wormhole"]
    for number in range(2, 7):
        expected = np.loadtxt(hpatches_sequences / "v_churchill" / f"H_1_{number}")
        np.testing.assert_array_equal(sequences[0].homographies[number - 1], expected)


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "1 ">{}]><opencv_storage><H><data>&j;</data></H></opencv_storage>'
)
ENTITIES = "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY j SYSTEM "file:///etc/passwd">]>'
    "<opencv_storage><H><data>&j;</data></H></opencv_storage>"
)
WRONG_HOMOGRAPHIES = {
    "entity bomb": (BOMB.format(ENTITIES).encode(), "declares a document type"),
    "entity bomb in UTF-16": (BOMB.format(ENTITIES).encode("utf-16"), "not a homography|document type"),
    "external entity": (OUTSIDE.encode(), "declares a document type"),
    "broken XML": (XML.format("1 0 0 0 1 0 0 0 1")[:100].encode(), "not a homography"),
    "document type after a comment": (b"<!-- x -->" + OUTSIDE.encode()[21:], "declares a document type"),
    "XML without a matrix": (b"<opencv_storage></opencv_storage>", "nine finite numbers"),
    "XML without a root": (b"<", "not a homography"),
    "matrix of nine columns": (
        XML.format("1 0 0 0 1 0 0 0 1").replace("<rows>3</rows><cols>3<", "<rows>1</rows><cols>9<").encode(),
        "nine finite numbers",
    ),
    "matrix of gigabytes": (XML.format("1 0 0 0 1 0 0 0 1").replace(">3<", ">40000<").encode(), "nine finite numbers"),
    "words in a matrix": (XML.format("1 0 0 0 1 0 0 0 one").encode(), "not a homography"),
    "undefined number in a matrix": (XML.format("1 0 0 0 1 0 0 0 nan").encode(), "nine finite numbers"),
    "deeply nested": (b"<a>" * 21_000, "not a homography"),
    "deeply nested and closed": (b"<a>" * 9_000 + b"</a>" * 9_000, "nine finite numbers"),
    "zero byte": (XML.format("1 0 0 0\0 1 0 0 0 1").encode(), "not a homography"),
    "eight numbers": (b"1 0 0 0 1 0 0 0", "nine finite numbers"),
    "ten numbers": (b"1 0 0 0 1 0 0 0 1 1", "nine finite numbers"),
    "words": (b"1 0 0 0 1 0 0 0 one", "not a homography"),
    "not finite": (b"1 0 0 0 1 0 0 0 nan", "nine finite numbers"),
    "not invertible": (b"1 0 0 0 1 0 0 0 0", "invertible"),
    "bytes": (bytes(range(128, 200)), "not a homography"),
    "too large": (b"1 " * 40_000, "too large"),
    "empty": (b"", "nine finite numbers"),
}


@pytest.mark.parametrize("case", WRONG_HOMOGRAPHIES)
def test_a_wrong_homography_is_named_in_one_line(tmp_path: Path, case: str) -> None:
    write_oxford(tmp_path / "graf", ".png", xml=True)
    content, message = WRONG_HOMOGRAPHIES[case]
    (tmp_path / "graf" / "H1to4p.xml").write_bytes(content)
    with pytest.raises(DoapError, match=rf"H1to4p\.xml: .*({message})") as caught:
        read_sequence(tmp_path / "graf")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("img3.png", r"img3\.png: no such image, also not as \.ppm or \.pgm"),
        ("H1to6p.xml", r"H1to6p: cannot be read"),
        ("img1.png", "graf: not an image sequence"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, missing: str, message: str) -> None:
    write_oxford(tmp_path / "graf", ".png", xml=True)
    (tmp_path / "graf" / missing).unlink()
    with pytest.raises(DoapError, match=message):
        read_sequence(tmp_path / "graf")


def test_the_first_matrix_counts(tmp_path: Path) -> None:
    (tmp_path / "H.xml").write_text(XML.format("2 0 0 0 2 0 0 0 1"))
    np.testing.assert_array_equal(read_homography(tmp_path / "H.xml"), np.diag([2, 2, 1]))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-7", "base64", "no-such-encoding"])
def test_the_declared_encoding_of_xml_is_ignored(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + XML.format("2 0 0 0 2 0 0 0 1").partition("?>")[2]
    (tmp_path / "H.xml").write_text(text, encoding="utf-8")
    np.testing.assert_array_equal(read_homography(tmp_path / "H.xml"), np.diag([2, 2, 1]))
