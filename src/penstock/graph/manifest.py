"""The manifest: the file of a saved graph that describes the others.

Converts between bytes and structs; docs/format.md describes them. This module opens no file and
does not trust its input: whatever the bytes, the result is a consistent manifest or a
`GraphFormatError`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeVar

import msgspec

from penstock import __version__
from penstock.core.known_types import known
from penstock.errors import GraphFormatError
from penstock.graph.checksum import sum_of_bytes
from penstock.graph.dtypes import SUPPORTED
from penstock.graph.inventory import first_disagreement, key_text, repeated
from penstock.graph.layout import array_nbytes
from penstock.graph.schema import ArrayKey, Schema

FORMAT: Final = "penstock-graph"
FORMAT_VERSION: Final = 4
# A graph is written in the oldest format that has what it needs: parts came with version 2, codecs
# with version 3, users' ids with version 4. A reader that does not know codecs would take stored
# numbers for those meant; one that does not know ids would lose them when it saves.
_WHOLE, _PART, _CODED, _NAMED = 1, 2, 3, 4

# The names that a writer gives. A reader follows no others, so that a manifest cannot lead it
# elsewhere, and a saver removes no others, whatever else is in the folder.
GENERATION_NAME: Final = re.compile(r"data-[0-9a-f]{16}")
FILE_NAME: Final = re.compile(r"[0-9]{4,}-[A-Za-z0-9_-]+\.bin")

_T = TypeVar("_T")
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ArrayEntry(msgspec.Struct, frozen=True):
    """One array, and its file in the generation's folder."""

    key: ArrayKey
    dtype: str
    shape: tuple[Size, ...]
    file: str
    checksum: str

    @property
    def nbytes(self) -> int:
        return array_nbytes(self.dtype, self.shape)


class Manifest(msgspec.Struct, frozen=True):
    """A saved graph: its types, its arrays, and the folder of its files."""

    written_by: str
    version: str
    generation: str
    schema: Schema
    arrays: tuple[ArrayEntry, ...]

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.arrays)

    def by_key(self) -> dict[ArrayKey, ArrayEntry]:
        return {entry.key: entry for entry in self.arrays}


class _Head(msgspec.Struct):
    """The fields that are read first; they must stay the same in all versions of the format."""

    format: Any = None
    format_version: Any = None


class _Envelope(msgspec.Struct):
    """The whole file. The checksum is of the exact bytes of `content`."""

    format: str
    format_version: int
    checksum: str
    content: msgspec.Raw


def writer_name() -> str:
    """Return who writes a manifest here: information for people, which readers ignore."""
    return f"penstock {__version__}"


def file_name(position: int, key: ArrayKey) -> str:
    """Return a file name for an array: its number makes it unique, the rest is for people."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "_", key_text(key).replace("/", "-"))
    return f"{position:04d}-{words[:80]}.bin"


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file."""
    content = _one_array_a_line(manifest)
    version = _format_version(manifest)
    envelope = _Envelope(FORMAT, version, sum_of_bytes(content), msgspec.Raw(content))
    return msgspec.json.encode(envelope) + b"\n"


def _format_version(manifest: Manifest) -> int:
    schema = manifest.schema
    if any(entry.key.group == "ids" for entry in manifest.arrays):
        return _NAMED
    if schema.codecs:
        return _CODED
    return _WHOLE if schema.part is None else _PART


def _one_array_a_line(manifest: Manifest) -> bytes:
    """Return JSON with one array per line, readable for people and searchable with `grep`."""
    arrays = b",\n  ".join(map(msgspec.json.encode, manifest.arrays))
    told = {**msgspec.structs.asdict(manifest), "schema": _schema(manifest.schema)}
    fields = [
        msgspec.json.encode(name) + b": " + msgspec.json.encode(value)
        for name, value in told.items()
        if name != "arrays"
    ]
    return b"{\n " + b",\n ".join([*fields, b'"arrays": [\n  ' + arrays + b"]"]) + b"}"


def _schema(schema: Schema) -> dict[str, Any]:
    """Return the fields of a schema; of parts and codecs only where there are any."""
    fields = msgspec.structs.asdict(schema)
    if schema.part is None:
        del fields["part"]
    if not schema.codecs:
        del fields["codecs"]
    return fields


def decode(data: bytes, where: object) -> Manifest:
    """Return the manifest in `data`; `where` names its file in errors."""
    check_format(data, where)
    envelope = _parse(data, _Envelope, where)
    content = bytes(envelope.content)
    if (found := sum_of_bytes(content)) != envelope.checksum:
        raise GraphFormatError(
            f"{where}: damaged: the sum of its content is {found}, not {envelope.checksum}"
        )
    manifest = _parse(content, Manifest, where)
    if (complaint := _complaint(manifest)) is not None:
        raise GraphFormatError(f"{where}: {complaint}")
    return manifest


def check_format(data: bytes, where: object) -> None:
    """Raise unless `data` is a manifest of a readable version; it may be damaged otherwise."""
    head = _parse(data, _Head, where)
    if head.format != FORMAT:
        said = "names no format" if head.format is None else f"has format {head.format!r}"
        raise GraphFormatError(f"{where}: not the manifest of a Penstock graph: it {said}")
    version = head.format_version
    if type(version) is not int or version < 1:
        raise GraphFormatError(f"{where}: format version {version!r} is none there ever was")
    if version > FORMAT_VERSION:
        raise GraphFormatError(
            f"{where}: written by a newer Penstock: format {version}, this one reads up to "
            f"{FORMAT_VERSION}; upgrade Penstock to open it"
        )


def _parse(data: bytes, kind: type[_T], where: object) -> _T:
    try:
        return msgspec.json.decode(data, type=known(kind))
    except msgspec.ValidationError as error:
        raise GraphFormatError(f"{where}: not a manifest as expected: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise GraphFormatError(f"{where}: not JSON, or cut short: {error}") from None


def _complaint(manifest: Manifest) -> str | None:
    if not GENERATION_NAME.fullmatch(manifest.generation):
        return f"generation {manifest.generation!r} is not a name Penstock gives to a folder"
    for entry in manifest.arrays:
        if not FILE_NAME.fullmatch(entry.file):
            return f"{key_text(entry.key)} has file {entry.file!r}, not a name Penstock gives"
        if entry.dtype not in SUPPORTED:
            return f"{key_text(entry.key)} has unknown dtype {entry.dtype!r}"
    for key in repeated(entry.key for entry in manifest.arrays):
        return f"{key_text(key)} occurs twice"
    for file in repeated(entry.file for entry in manifest.arrays):
        return f"file {file} is given to two arrays"
    return first_disagreement(manifest.schema, manifest.by_key())
