"""The verb ``export-c``: a cartridge as a shared library for hosts in C."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click

from cartridge_core.cli.options import prints_result, read_sets, sets
from cartridge_core.cli.values import read_values
from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.manifest import Manifest
    from cartridge_core.registry import Registry

__all__ = ["export_c"]

_EXPORTER = "cartridge_native.export"


class _ExportLibrary(Protocol):
    def __call__(
        self,
        registry: Registry,
        cartridge_id: str,
        cap: str,
        args: Mapping[str, object],
        target: Path,
        *,
        id_: str | None = None,
    ) -> Manifest: ...


@click.command("export-c")
@click.argument("cartridge_id", metavar="ID")
@click.option("--cap", required=True, metavar="URN", help="Which of its caps.")
@sets
@click.option("--id", "pack_id", metavar="ID", help="The library's own id.  [default: native-ID]")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder that is made.",
)
@prints_result
@click.pass_obj
def export_c(
    terminal: Terminal,
    cartridge_id: str,
    *,
    cap: str,
    settings: tuple[str, ...],
    pack_id: str | None,
    out: Path,
) -> None:
    """Make a library for C of the cartridge ID.

    It is a shared library that serves the one cap, with the arguments that are set now, model_spec
    among them. It runs the cartridge as it is installed here. DIR is its pack, which is not signed
    yet.
    """
    export_library = _exporter()
    pairs = read_sets(settings)
    terminal.capture()
    with terminal.registry() as registry:
        route = registry.route(cap, cartridge_id=cartridge_id)
        args = read_values(route.cap.args, pairs)
        manifest = export_library(registry, cartridge_id, cap, args, out, id_=pack_id)
    library = next(file.path for file in manifest.files if file.role == "runtime")
    document = {"pack": out, "id": manifest.id, "library": library, "digest": manifest.digest}
    terminal.give(document, f"{out}: {manifest.id} {manifest.version}, {library}, not signed")


def _exporter() -> _ExportLibrary:
    try:
        module = importlib.import_module(_EXPORTER)
    except ImportError as exc:
        msg = (
            "export-c needs the package cartridge-native, which cannot be imported "
            f'({exc}): `pip install "cartridge-native[export]"`'
        )
        raise LoadError(msg) from exc
    return cast("_ExportLibrary", module.export_library)
