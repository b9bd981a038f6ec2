"""From an installed cartridge to the pack of a library that serves one cap of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_core.arguments import bind
from cartridge_core.errors import LoadError
from cartridge_core.modelspec import FileSpec, ModelSpec
from cartridge_core.packmaking import make_own_pack
from cartridge_native.export.building import build
from cartridge_native.export.describing import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.manifest import Manifest
    from cartridge_core.registry import Registry

__all__ = ["export_library"]


def export_library(
    registry: Registry,
    cartridge_id: str,
    cap: str,
    args: Mapping[str, object],
    target: Path,
    *,
    id_: str | None = None,
) -> Manifest:
    """
    Export one cap of an installed cartridge; the pack is not signed yet.

    Args:
        registry: What is installed.
        cartridge_id: The cartridge.
        cap: Which of its caps, as a request.
        args: The cap's arguments besides its input, ``model_spec`` among them; they are fixed.
            What is not given keeps the default that the installed cartridge declares.
        target: The pack's folder, which must not exist.
        id_: The library's id; None is ``native-`` and the cartridge's.

    Raises:
        NoRouteError: There is no such cartridge, it does not offer the cap, or not for the model.

        InvalidArgumentError: An argument breaks its rule, or the id is none.

        UnsupportedError: The cap cannot be a library's.

        LoadError: The model is a path that leads nowhere, something that is needed to build is
            missing, or the pack cannot be written.
    """
    spec = _absolute(args.get("model_spec"))
    if spec is not None:
        args = {**args, "model_spec": spec}
    args = {name: value for name, value in args.items() if value is not None}
    route = registry.route(cap, cartridge_id=cartridge_id, model_spec=spec)
    bind(route.cap, args)
    descriptor = describe(route, args, f"native-{cartridge_id}" if id_ is None else id_)
    if target.exists():
        msg = f"{target} exists; name a folder that does not, or remove it"
        raise LoadError(msg)
    with tempfile.TemporaryDirectory(prefix="cartridge-export-") as scratch:
        made = Path(scratch)
        runtime = made / "artifacts" / "runtime"
        runtime.mkdir(parents=True)
        (made / "descriptor.json").write_bytes(descriptor)
        build(descriptor, cartridge_id.replace("-", "_"), runtime)
        return make_own_pack(made, target)


def _absolute(spec: object) -> str | None:
    """Give a model spec that means the same in every working folder."""
    if not isinstance(spec, str | Path):
        return None
    parsed = ModelSpec.parse(spec)
    if isinstance(parsed, FileSpec) and not parsed.path.exists():
        msg = f"model {parsed.path} does not exist; check the path"
        raise LoadError(msg)
    return str(parsed) if isinstance(parsed, FileSpec) else str(spec)
