"""Reading a header: equal to the gguf package's reader, and hard to fool."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import struct
import tracemalloc
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cartridge_core.errors import LoadError
from cartridge_gguf.header import Header, read_header
from cartridge_gguf.parsing import Texts
from cartridge_gguf.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

U8, U32, I32, F32, BOOL, TEXT, ARRAY, U64, F64 = 0, 4, 5, 6, 7, 8, 9, 10, 12
FORMATS = {U8: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?"}
FORMATS |= {U64: "Q", 11: "q", F64: "d"}
MODELS = ("llama", "byte_pair", "q8", "bert", "projector")


def text(value: str | bytes) -> bytes:
    """Write a text."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value: object) -> bytes:
    """Write a value without its type."""
    if kind == TEXT:
        assert isinstance(value, str | bytes)
        return text(value)
    return struct.pack(f"<{FORMATS[kind]}", value)


def entry(key: str, kind: int, value: object) -> bytes:
    """Write a metadata entry."""
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array_entry(key: str, kind: int, values: Sequence[object], count: int | None = None) -> bytes:
    """Write a metadata entry that is an array; ``count`` may lie."""
    head = struct.pack("<IIQ", ARRAY, kind, len(values) if count is None else count)
    return text(key) + head + b"".join(scalar(kind, value) for value in values)


def tensor(name: str, shape: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    """Write what the header says of a tensor."""
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def header(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    version: int = 3,
    data: int = 0,
    entry_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """Write a file with so many bytes of tensor data; the counts may lie."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(entries) if entry_count is None else entry_count,
    )
    start = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join([*entries, *tensors])
    return start + b"\0" * ((-len(start) % 32) + data if tensors else 0)


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], Header]:
    """Read bytes as a file."""

    def run(data: bytes) -> Header:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return read_header(path)

    return run


@pytest.mark.parametrize("fixture", MODELS)
def test_a_header_is_what_the_gguf_package_reads(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    """Every metadata entry and every tensor is the one that gguf.GGUFReader finds."""
    import gguf

    path: Path = request.getfixturevalue(fixture)
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    fields = {key: item for key, item in theirs.fields.items() if not key.startswith("GGUF.")}
    assert set(ours.metadata) == set(fields)
    for key, field in fields.items():
        found = ours.metadata[key]
        value = list(found) if isinstance(found, Texts | array) else found
        assert value == field.contents(), key
    found_tensors = [(item.name, list(item.shape), item.type, item.nbytes) for item in ours.tensors]
    assert found_tensors == [
        (item.name, item.shape.tolist(), int(item.tensor_type), item.n_bytes)
        for item in theirs.tensors
    ]
    assert ours.file_size == path.stat().st_size


def test_the_numbers_of_a_model(llama: Path) -> None:
    """The properties give what the model was written with."""
    from tiny_vocabularies import sentence_pieces

    found = read_header(llama)
    assert (found.architecture, found.kind, found.name) == ("llama", "model", "tiny")
    assert (found.context_length, found.embedding_length, found.block_count) == (2048, 64, 2)
    assert (found.head_count, found.head_count_kv) == (4, 2)
    assert found.vocabulary_size == len(sentence_pieces().tokens)
    assert found.chat_template is not None
    assert found.tokens is not None
    assert "im_start" in found.chat_template
    assert found.data_size == sum(item.nbytes or 0 for item in found.tensors)


def test_a_projector_is_told_by_its_header(projector: Path, read: Callable[..., Header]) -> None:
    """The kind is mmproj, for old files too, which say no general.type."""
    assert read_header(projector).kind == "mmproj"
    assert read(header([entry("general.architecture", TEXT, "clip")])).kind == "mmproj"


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(read: Callable[[bytes], Header], version: int) -> None:
    """Version 2 differs from 3 in nothing that is read."""
    found = read(header([entry("general.name", TEXT, "x")], version=version))
    assert (found.version, found.name, found.tensors) == (version, "x", ())


VALUES = st.one_of(
    st.tuples(st.just(U8), st.integers(0, 255)),
    st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(U64), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(F64), st.floats(allow_nan=False)),
    st.tuples(st.just(F32), st.floats(allow_nan=False, width=32)),
    st.tuples(st.just(BOOL), st.booleans()),
    st.tuples(st.just(TEXT), st.text()),
)
ARRAYS = st.one_of(
    st.tuples(st.just(I32), st.lists(st.integers(-(2**31), 2**31 - 1))),
    st.tuples(st.just(F32), st.lists(st.floats(allow_nan=False, width=32))),
    st.tuples(st.just(BOOL), st.lists(st.booleans())),
    st.tuples(st.just(TEXT), st.lists(st.text())),
)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(
    values=st.dictionaries(st.text(min_size=1), VALUES),
    arrays=st.dictionaries(st.text(min_size=1), ARRAYS),
)
@QUICK
def test_metadata_comes_back(
    tmp_path: Path,
    values: Mapping[str, tuple[int, object]],
    arrays: Mapping[str, tuple[int, list[object]]],
) -> None:
    """What is written is read, whatever keys, types and texts."""
    entries = [entry(f"v{key}", *value) for key, value in values.items()]
    entries += [array_entry(f"a{key}", *value) for key, value in arrays.items()]
    path = tmp_path / "model.gguf"
    path.write_bytes(header(entries))
    found = read_header(path).metadata
    assert {key: value for key, value in found.items() if key[0] == "v"} == {
        f"v{key}": value for key, (_, value) in values.items()
    }
    lists = {key: value for key, value in found.items() if isinstance(value, Texts | array)}
    assert {key: list(value) for key, value in lists.items()} == {
        f"a{key}": value for key, (_, value) in arrays.items()
    }


def test_texts_are_a_sequence(read: Callable[[bytes], Header]) -> None:
    """An array of texts has a length, places from both ends, and slices."""
    found = read(header([array_entry("k", TEXT, ["a", "", "ü", "d"])])).texts("k")
    assert found is not None
    assert (len(found), found[2], found[-4], found[1:3]) == (4, "ü", "a", ["", "ü"])
    with pytest.raises(IndexError):
        found[4]


def test_a_text_that_is_no_utf8_is_kept(read: Callable[[bytes], Header]) -> None:
    """Its bytes can be had back."""
    raw = b"\xff\xe2\x96ok\xed\xa0\x80"
    found = read(header([entry("general.name", TEXT, raw), array_entry("k", TEXT, [raw, b"x"])]))
    texts = found.texts("k")
    assert found.name is not None
    assert texts is not None
    assert found.name.encode("utf-8", "surrogateescape") == raw
    assert list(texts.raw()) == [raw, b"x"]
    assert texts[0] == found.name


def test_the_sizes_of_types_are_ggmls() -> None:
    """Every type of the installed ggml takes as many bytes here; the others are unknown."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    (folder,) = spec.submodule_search_locations or [""]
    ggml = ctypes.CDLL(str(next(Path(folder, "lib").glob("libggml-base*"))))
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_row_size.restype = ctypes.c_size_t
    for kind in range(43):
        row = 3 * ggml.ggml_blck_size(kind)
        size = ggml.ggml_row_size(kind, ctypes.c_int64(row)) if row else None
        assert Tensor("t", (row, 5), kind, 0).nbytes == (size and 5 * size), kind
    assert Tensor("t", (1,), 43, 0).nbytes is None


def test_an_unknown_tensor_type_is_named(read: Callable[[bytes], Header]) -> None:
    """The metadata can be read all the same; how long the file must be is not known then."""
    found = read(header(tensors=[tensor("a", [32]), tensor("b", [1 << 40], 250, 128)], data=128))
    assert found.unknown_types == (250,)
    assert (found.tensors[1].type_name, found.tensors[1].nbytes) == (None, None)


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        pytest.param([], 0, 4, id="no-dimension"),
        pytest.param([7], 0, 28, id="one-dimension"),
        pytest.param([32, 3, 2], 2, 108, id="blocks"),
        pytest.param([0, 5], 0, 0, id="nothing"),
    ],
)
def test_a_file_is_as_long_as_its_tensors(
    read: Callable[[bytes], Header], shape: list[int], kind: int, size: int
) -> None:
    """It is read where every byte is there, and refused where the last is missing."""
    whole = header(tensors=[tensor("t", shape, kind)], data=size)
    assert read(whole).data_size == size
    if size:
        with pytest.raises(LoadError, match=rf"truncated.* {len(whole)} bytes.* {len(whole) - 1};"):
            read(whole[:-1])


def test_the_alignment_is_the_files(read: Callable[[bytes], Header]) -> None:
    """Where the tensor data begins is as the file says."""
    start = [entry("general.alignment", U32, 1024)]
    data = header(start, [tensor("t", [4])])
    read(data.ljust(1024 + 16, b"\0"))
    with pytest.raises(LoadError, match="promises 1040 bytes"):
        read(data.ljust(1024 + 15, b"\0"))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 98362432\n" % (b"a" * 64)
IMPOSTORS = {
    "a06-web-page": (b"<!DOCTYPE html><html>nope</html>", "web page"),
    "a06-lfs-pointer": (LFS, "Git LFS pointer.* 98362432 bytes"),
    "a06-version-99": (header(version=99), "unsupported version.* 2 and 3"),
    "a06-empty": (b"", "empty"),
    "web-page-after-a-mark": (b"\xef\xbb\xbf\r\n  <HTML>", "web page"),
    "xml-error": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "web page"),
    "json-error": (b'{"error": "Repository not found"}', "JSON"),
    "lfs-pointer-without-size": (LFS[:44], "Git LFS pointer, not the file it"),
    "zip": (b"PK\x03\x04" + b"\0" * 40, "zip archive or a PyTorch checkpoint"),
    "pickle": (b"\x80\x02}q\x00", "PyTorch"),
    "safetensors": (struct.pack("<Q", 40) + b'{"__metadata__":{}}', "safetensors"),
    "before-gguf": (b"tjgg\x03\0\0\0", "before GGUF"),
    "zeros": (b"\0" * 4096, "begins with zeros"),
    "noise": (b"\x93\x01ab", r"begins with '\\\\x93"),
    "lower-case-magic": (b"gguf" + header()[4:], "begins with 'gguf'"),
    "version-0": (header(version=0x30000)[:24], "big-endian"),
    "version-1": (header(version=1), "version 1"),
    "big-endian": (b"GGUF\0\0\0\3" + b"\0" * 16, "big-endian"),
    "magic-alone": (b"GGUF", "truncated.* at least 8 bytes.* 4;"),
    "part-of-the-magic": (b"GG", "truncated.* at least 4 bytes"),
    "header-cut": (header([entry("general.name", TEXT, "a long name")])[:-4], "truncated"),
}


@pytest.mark.parametrize(("data", "what"), IMPOSTORS.values(), ids=IMPOSTORS)
def test_error_no_gguf_file(read: Callable[[bytes], Header], data: bytes, what: str) -> None:
    """Each kind of wrong file has its own error, which says what it is."""
    with pytest.raises(LoadError, match=f"model .*model.gguf: .*{what}"):
        read(data)


def test_error_a06_truncated(llama: Path, read: Callable[[bytes], Header]) -> None:
    """The first half of a good file: how many bytes it should have, and how many it has."""
    whole = llama.read_bytes()
    half = len(whole) // 2
    with pytest.raises(LoadError, match=f"truncated.* {len(whole)} bytes, and it has {half};"):
        read(whole[:half])


def test_error_a06_directory(tmp_path: Path) -> None:
    """A directory is no file."""
    with pytest.raises(LoadError, match="is a directory"):
        read_header(tmp_path)


@pytest.mark.parametrize("kind", ["missing", "link-to-nothing", "link-to-itself", "pipe"])
def test_error_nothing_to_read(tmp_path: Path, kind: str) -> None:
    """It is refused at once, without waiting for somebody to write into a pipe."""
    path = tmp_path / "model.gguf"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.symlink_to("nowhere" if kind == "link-to-nothing" else path)
    with pytest.raises(LoadError, match="is a pipe" if kind == "pipe" else "cannot be read"):
        read_header(path)


HUGE = 1 << 60
DAMAGED = {
    "entry-count": (header(entry_count=HUGE), f"{HUGE} metadata entries"),
    "tensor-count": (header(tensor_count=HUGE), f"{HUGE} tensors"),
    "entries-missing": (header(entry_count=3), "truncated"),
    "tensors-missing": (header(tensor_count=3), "truncated"),
    "key-length": (header([struct.pack("<Q", HUGE)]), "truncated"),
    "text-length": (header([text("k") + struct.pack("<IQ", TEXT, 2**64 - 1)]), "truncated"),
    "array-length": (header([array_entry("k", F64, [], HUGE)]), "truncated"),
    "texts-count": (header([array_entry("k", TEXT, [], HUGE)]), "truncated"),
    "texts-count-too-large-by-one": (header([array_entry("k", TEXT, ["a"], 2)]), "truncated"),
    "text-in-an-array": (
        header([array_entry("k", TEXT, [], 2) + struct.pack("<QQ", 2**64 - 1, 1)]),
        "truncated",
    ),
    "array-of-arrays": (header([array_entry("k", ARRAY, [], 1)]), "'k' has the unknown type 9"),
    "unknown-type": (header([text("k") + struct.pack("<I", 13)]), "'k' has the unknown type 13"),
    "key-twice": (header([entry("k", U8, 1), entry("k", U8, 1)]), "'k' twice"),
    "five-dimensions": (header(tensors=[tensor("t", [1] * 5)]), "'t' has 5 dimensions"),
    "dimension-count": (header(tensors=[text("t") + b"\xff" * 4]), "4294967295 dimensions"),
    "huge-tensor": (header(tensors=[tensor("t", [2**63, 2**63, 2**63, 2**63])]), "truncated"),
    "tensor-offset": (header(tensors=[tensor("t", [1], 0, 2**64 - 32)]), "truncated"),
    "alignment-0": (header([entry("general.alignment", U32, 0)]), "alignment is 0"),
    "alignment-3": (header([entry("general.alignment", U32, 3)]), "alignment is 3"),
    "alignment-text": (header([entry("general.alignment", TEXT, "x")]), "a whole number"),
}


@pytest.mark.parametrize(("data", "what"), DAMAGED.values(), ids=DAMAGED)
def test_error_damaged(read: Callable[[bytes], Header], data: bytes, what: str) -> None:
    """A header that lies is refused, and no memory is taken for what it claims."""
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match=what):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "count"), [(F64, 1 << 36), (TEXT, 1 << 36), (U8, 1 << 30)], ids=["f64", "texts", "u8"]
)
def test_error_a_header_of_gigabytes(tmp_path: Path, kind: int, count: int) -> None:
    """A file that is as large as its header claims is refused all the same."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header([array_entry("k", kind, [], count)]))
    os.truncate(path, 1 << 40)  # takes no space on the disk
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match="longer than 134217728 bytes"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_error_more_texts_than_a_vocabulary_has(read: Callable[[bytes], Header]) -> None:
    """Millions of empty texts, which the file really has, are refused all the same."""
    count = (1 << 21) + 1
    with pytest.raises(LoadError, match=f"'k' has {count} texts"):
        read(header([array_entry("k", TEXT, [], count) + b"\0" * 8 * count]))


@given(place=st.integers(0, 1 << 20), noise=st.binary(min_size=1, max_size=9))
@QUICK
def test_noise_gives_a_header_or_a_load_error(
    bert: Path, tmp_path: Path, place: int, noise: bytes
) -> None:
    """Bytes of a good file's header overwritten: never another exception."""
    whole = bytearray(bert.read_bytes())
    place %= 12_000
    whole[place : place + len(noise)] = noise
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    try:
        found = read_header(path)
        for name in ("kind", "name", "context_length", "head_count", "vocabulary_size"):
            getattr(found, name)
    except LoadError:
        pass


@given(length=st.integers(1, 1 << 20))
@QUICK
def test_error_every_beginning_is_truncated(bert: Path, tmp_path: Path, length: int) -> None:
    """Wherever a good file is cut, the error says so."""
    whole = bert.read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[: length % (len(whole) - 32) + 1])
    with pytest.raises(LoadError, match="truncated"):
        read_header(path)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        pytest.param(entry("x.block_count", TEXT, "2"), "block_count", id="text"),
        pytest.param(entry("x.block_count", F32, 2.0), "block_count", id="float"),
        pytest.param(entry("x.context_length", BOOL, True), "context_length", id="bool"),
        pytest.param(array_entry("x.context_length", F32, [1.0]), "context_length", id="floats"),
        pytest.param(entry("tokenizer.ggml.tokens", U8, 1), "tokens", id="no-texts"),
        pytest.param(
            array_entry("tokenizer.chat_template", TEXT, ["a"]), "chat_template", id="texts"
        ),
    ],
)
def test_error_metadata_of_the_wrong_type(
    read: Callable[[bytes], Header], written: bytes, name: str
) -> None:
    """What should be a number or a text and is not is named when it is asked for."""
    found = read(header([entry("general.architecture", TEXT, "x"), written]))
    with pytest.raises(LoadError, match=rf"its metadata entry '.*{name}' should be"):
        getattr(found, name)


def test_a_number_a_layer(read: Callable[[bytes], Header]) -> None:
    """Where layers differ, the most counts; what the file does not say is None."""
    start = [entry("general.architecture", TEXT, "x")]
    found = read(header([*start, array_entry("x.attention.head_count", I32, [4, 8, 0])]))
    assert (found.head_count, found.head_count_kv) == (8, 8)
    assert (found.context_length, found.chat_template, found.number("x.rope")) == (None,) * 3
    assert list(found.integers(found.key("attention.head_count")) or ()) == [4, 8, 0]
    assert read(header([entry("n", F32, math.inf)])).number("n") == math.inf
