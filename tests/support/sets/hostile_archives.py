"""Hostile archives: their bytes, and the expected error."""

import io
import struct
import tarfile
import zipfile


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    return tar_of([(tar_file(name, len(content)), content) for name, content in files.items()], mode)


def tar_file(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_without_a_name() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        member = zipfile.ZipInfo("x")
        member.filename = ""
        archive.writestr(member, b"hello")
    return buffer.getvalue()


def zip_with_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("out")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "../..")
        archive.writestr("out/escaped", b"x")
    return buffer.getvalue()


def encrypted_zip() -> bytes:
    plain = bytearray(zipped({"secret": b"x" * 50}))
    for head, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        offset = plain.index(head) + flags
        struct.pack_into("<H", plain, offset, struct.unpack_from("<H", plain, offset)[0] | 1)
    return bytes(plain)


def zip_that_lies_about_a_size() -> bytes:
    """Return a zip file whose member unpacks to 1 MB but claims ten bytes."""
    lying = bytearray(zipped({"a": bytes(1_000_000)}))
    struct.pack_into("<I", lying, lying.index(b"PK\x03\x04") + 22, 10)
    struct.pack_into("<I", lying, lying.index(b"PK\x01\x02") + 24, 10)
    return bytes(lying)


def tar_with_a_huge_header() -> bytes:
    """Return a tar file with a name that claims a length of 8 GB, which would be read into memory."""
    head = tar_file("././@LongLink", 8 << 30, tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    return head + bytes(1 << 20)


def tar_with_a_damaged_header() -> bytes:
    whole = bytearray(tarred({"a": b"1" * 600, "b": b"2" * 600}, "w:"))
    whole[512 + 1024 + 10] ^= 0xFF
    return bytes(whole)


GOOD = {"top/one.txt": b"one", "top/deep/two.txt": b"two" * 1000, "top/__MACOSX/._one.txt": b"litter"}
NOISE = bytes(range(256)) * 40

HOSTILE: dict[str, tuple[bytes, str]] = {
    "zip leads out": (zipped({"../escaped": b"x"}), "leads outside the folder"),
    "zip leads out later": (zipped({"a/b/../../../escaped": b"x"}), "leads outside the folder"),
    "zip leads out by backslash": (zipped({"..\\escaped": b"x"}), "leads outside the folder"),
    "zip absolute": (zipped({"/tmp/doap-escaped": b"x"}), "leads outside the folder"),
    "zip drive": (zipped({"C:escaped": b"x"}), "leads outside the folder"),
    "zip line feed": (zipped({"a\nb": b"x"}), "leads outside the folder"),
    "zip without a name": (zip_without_a_name(), "'', whose name is not valid"),
    "zip link": (zip_with_link(), "'out' is a link or a device"),
    "zip encrypted": (encrypted_zip(), "'secret' is encrypted"),
    "zip bomb": (zipped({f"{n}": bytes(900_000) for n in range(3)}), "unpacks to more than 1,000,000 bytes"),
    "zip lies": (zip_that_lies_about_a_size(), "damaged"),
    "zip many": (zipped({f"{n}/": b"" for n in range(60)}), "more than 50 files and folders"),
    "zip twice": (zipped({"Name.txt": b"1", "name.TXT": b"2"}), "twice, or under names that differ only in case"),
    "zip cut": (zipped({"a": NOISE})[:-40], "damaged, or not a zip or tar archive"),
    "zip wrong byte": (zipped({"a": NOISE}, zipfile.ZIP_STORED).replace(b"\x50\x51", b"\x51\x51", 1), "damaged"),
    "zip file below a file": (zipped({"a": b"1", "a/b": b"2"}), "cannot be unpacked"),
    "tar leads out": (tarred({"../escaped": b"x"}), "leads outside the folder"),
    "tar absolute": (tarred({"/tmp/doap-escaped": b"x"}), "leads outside the folder"),
    "tar link and through it": (
        tar_of([(tar_file("out", kind=tarfile.SYMTYPE, link="../.."), b""), (tar_file("out/escaped", 1), b"x")]),
        "'out' is a link or a device",
    ),
    "tar hard link": (tar_of([(tar_file("h", kind=tarfile.LNKTYPE, link="/etc/passwd"), b"")]), "link or a device"),
    "tar device": (tar_of([(tar_file("null", kind=tarfile.CHRTYPE), b"")]), "'null' is a link or a device"),
    "tar pipe": (tar_of([(tar_file("pipe", kind=tarfile.FIFOTYPE), b"")]), "'pipe' is a link or a device"),
    "tar bomb": (tarred({"a": bytes(5_000_000)}, "w:xz"), "unpacks to more than 1,000,000 bytes"),
    "tar many": (tarred({f"{n}": b"" for n in range(60)}), "more than 50 files and folders"),
    "tar huge header": (tar_with_a_huge_header(), "a header with an impossible length"),
    "tar damaged header": (tar_with_a_damaged_header(), "a header in the middle cannot be read"),
    "tar.gz cut": (tarred({"a": NOISE})[:-60], "damaged"),
    "tar.gz wrong checksum": (tarred({"a": NOISE})[:-8] + bytes(8), "damaged"),
    "tar.bz2 cut": (tarred({"a": NOISE}, "w:bz2")[:-40], "damaged"),
    "tar.xz cut": (tarred({"a": NOISE}, "w:xz")[:-40], "damaged"),
    "words": (b"these are words, not an archive" * 40, "damaged, or not a zip or tar archive"),
    "nothing": (b"", "damaged, or not a zip or tar archive"),
}
