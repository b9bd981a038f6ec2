"""Any number of threads may read."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
from PIL import Image, ImageFile

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from pathlib import Path


def test_threads_get_what_one_gets(files: dict[str, bytes], tmp_path: Path) -> None:
    """Files, bytes, arrays, and what is refused, all mixed, 16 at a time from one start."""
    deep = np.arange(600, dtype=np.uint16).reshape(20, 30) << 6
    values: list[object] = [*files.values(), deep, *(data[:700] for data in files.values())]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        values.append(tmp_path / name)

    def outcome(value: object) -> bytes | str:
        try:
            return read_image(value).tobytes()
        except InvalidArgumentError as exc:
            return str(exc)

    alone = [outcome(value) for value in values]
    start = threading.Barrier(16)

    def run(shift: int) -> list[bytes | str]:
        start.wait()
        order = [(shift + index) % len(values) for index in range(len(values))]
        found = {index: outcome(values[index]) for index in order}
        return [found[index] for index in range(len(values))]

    with ThreadPoolExecutor(16) as pool:
        assert all(found == alone for found in pool.map(run, range(16)))


def test_nothing_of_the_process_is_changed(files: dict[str, bytes]) -> None:
    """Pillow's switches and Python's warning filters are the same objects with the same content."""

    def state() -> tuple[object, ...]:
        return (
            Image.MAX_IMAGE_PIXELS,
            ImageFile.LOAD_TRUNCATED_IMAGES,
            ImageFile.MAXBLOCK,
            id(warnings.filters),
            list(warnings.filters),
            warnings.showwarning,
        )

    before = state()
    for data in files.values():
        read_image(data)
        for end in (10, 500):
            try:
                read_image(data[:end])
            except InvalidArgumentError:
                assert state() == before
    assert state() == before
