"""Models that are a file or a folder of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import attrs

from cartridge_core.errors import DownloadError, UnsupportedError
from cartridge_models.origin import Model, ModelFile, Removed

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.context import Context
    from cartridge_core.modelspec import FileSpec

__all__ = ["LocalOrigin"]


@attrs.frozen
class LocalOrigin:
    """A path on this machine; nothing is fetched, and nothing removed."""

    spec: FileSpec

    @property
    def name(self) -> str:
        """The file's or the folder's name."""
        return self.spec.path.name

    @property
    def repository(self) -> str:
        """The folder that it is in."""
        return str(self.spec.path.parent)

    def find(self, context: Context) -> Model | None:
        """
        Look whether it is there.

        Raises:
            DownloadError: It cannot be read.
        """
        context.check_cancelled()
        path = self.spec.path
        try:
            if not path.exists():
                return None
            return Model(path, tuple(_files(path)))
        except OSError as exc:
            msg = f"model {self.spec}: it cannot be read: {exc}"
            raise DownloadError(msg) from exc

    def fetch(self, context: Context) -> Model:
        """Find it."""
        found = self.find(context)
        if found is None:
            self._refuse()
        return found

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Refuse: it is nowhere else."""
        del context
        self._refuse()

    def is_offered(self, context: Context) -> bool:
        """Say no: it is nowhere else."""
        del context
        return False

    def remove(self, context: Context) -> Removed:
        """Refuse: it was not fetched."""
        del context
        msg = f"model {self.spec}: it is your own, and was not fetched; remove {self.spec.path}"
        raise UnsupportedError(msg)

    def _refuse(self) -> NoReturn:
        msg = f"model {self.spec}: there is nothing at {self.spec.path}; check the path"
        raise DownloadError(msg)


def _files(path: Path) -> list[ModelFile]:
    if not path.is_dir():
        return [ModelFile(path.name, path.stat().st_size)]
    inside = sorted(one for one in path.rglob("*") if one.is_file())
    return [ModelFile(one.relative_to(path).as_posix(), one.stat().st_size) for one in inside]
