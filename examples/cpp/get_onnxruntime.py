"""Make a folder with headers and library of onnxruntime for C++: `python get_onnxruntime.py onnxruntime`.

The library is that of the installed Python package, `pip install 'doap[onnx]'`. The headers, which the package lacks,
are Debian's libonnxruntime-dev. They are the same for all systems, and a program compiled with older headers runs with
a newer library.
"""

import hashlib
import io
import shutil
import sys
import tarfile
import urllib.request
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path, PurePosixPath

HEADERS = "https://deb.debian.org/debian/pool/main/o/onnxruntime/libonnxruntime-dev_1.21.0+dfsg-1_amd64.deb"
SHA256 = "14f7d959d5deacbcf1504830d4189f91fc67382b399ed9ae9d3aa9c4050ced08"


def main(folder: Path) -> None:
    """Write the folders include and lib."""
    library = find_library()
    write_headers(download(HEADERS, SHA256), folder / "include")
    copy_library(library, folder / "lib")
    print(f"{folder}: headers and {library.name}")


def find_library() -> Path:
    """Return the library of the installed package."""
    try:
        paths = [str(path.locate()) for path in files("onnxruntime") or []]
    except PackageNotFoundError:
        raise SystemExit("onnxruntime is not installed; run: pip install 'doap[onnx]'") from None
    for path in map(Path, paths):
        if path.name.startswith(("libonnxruntime.so.", "libonnxruntime.1.")):
            return path
    raise SystemExit("the installed onnxruntime has no library for C++; run: pip install 'onnxruntime>=1.22'")


def download(url: str, sha256: str) -> bytes:
    """Return the content of a file on the web."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            content: bytes = response.read()
    except OSError as error:
        raise SystemExit(f"{url}: cannot be downloaded ({error})") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SystemExit(f"{url}: has another checksum than expected")
    return content


def write_headers(package: bytes, include: Path) -> None:
    """Write the headers of a Debian package, an ar archive whose member data.tar.xz has the files."""
    start = len("!<arch>\n")
    while not package.startswith(b"data.tar.xz", start):
        size = int(package[start + 48 : start + 58])
        start += 60 + size + size % 2  # a header of 60 bytes; members start at even offsets
    include.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(package[start + 60 :]), mode="r:xz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.match("onnxruntime/*.h") and (content := archive.extractfile(member)):
                (include / path.name).write_bytes(content.read())


def copy_library(library: Path, lib: Path) -> None:
    """Copy the library and link it under the names that linkers and loaders look for."""
    lib.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, lib)
    mac = library.suffix == ".dylib"
    for name in (
        ("libonnxruntime.dylib", "libonnxruntime.1.dylib") if mac else ("libonnxruntime.so", "libonnxruntime.so.1")
    ):
        (lib / name).unlink(missing_ok=True)
        (lib / name).symlink_to(library.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
