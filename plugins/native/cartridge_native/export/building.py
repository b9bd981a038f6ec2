"""Makes the library: C by cffi, compiled for this Python; nothing else imports cffi."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import cartridge_native
from cartridge_core.errors import LoadError

__all__ = ["build"]

_HERE = Path(__file__).parent
_TIMEOUT_S = 300.0
_SUFFIX = {"darwin": ".dylib"}

_FUNCTIONS = """
extern "Python" {
    int32_t served_preflight(char *detail, char *why, size_t room);
    int32_t served_open(uintptr_t *out, char *why, size_t room);
    int32_t served_close(uintptr_t cartridge);
    int32_t served_begin(uintptr_t cartridge, uintptr_t *out);
    int32_t served_end(uintptr_t session);
    int32_t served_infer(uintptr_t session, const char *data, size_t len, uintptr_t *out);
    int32_t served_push(uintptr_t session, const char *data, size_t len);
    int32_t served_pull(uintptr_t session, uintptr_t *out);
    int32_t served_flush(uintptr_t session);
    int32_t served_cancel(uintptr_t session);
    int32_t served_kind(uintptr_t result);
    int32_t served_payload(uintptr_t result, const void **data, size_t *len);
    void served_release(uintptr_t result);
    const char *served_last_error(uintptr_t handle);
    int32_t served_refuse(uintptr_t handle, int32_t status, const char *text);
}
"""

_SET_UP = """\
import site, sys

for folder in {folders!r}:
    if folder not in sys.path:
        site.addsitedir(folder)
from cartridge_native.export.served import serve
"""
"""Run once, in whatever Python there is."""


def build(descriptor: bytes, name: str, folder: Path) -> Path:
    """
    Build the library of a descriptor.

    Args:
        descriptor: As `describe` writes it.
        name: Of the library, without prefix and suffix.
        folder: Where it is put.

    Raises:
        LoadError: cffi, a C compiler, or Python's headers or shared library are missing, or the
            compiler fails.
    """
    compiler = _compiler()
    python_library = _python_library()
    folders = [os.path.abspath(path) for path in sys.path if os.path.isdir(path or ".")]
    source = folder / f"{name}.c"
    _write_source(descriptor, folders, source)
    library = folder / f"lib{name}{_SUFFIX.get(sys.platform, '.so')}"
    command = [
        *compiler,
        *("-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-pthread", "-D_CFFI_NO_LIMITED_API"),
        *("-I", str(Path(cartridge_native.__file__).parent / "include")),
        *("-I", sysconfig.get_path("include"), str(source), "-o", str(library)),
        *(str(python_library), f"-Wl,-rpath,{python_library.parent}", "-ldl"),
    ]
    if sys.platform == "linux":
        # Two such libraries never take each other's functions, and none is unloaded under Python.
        command += ["-Wl,-Bsymbolic", "-Wl,-z,nodelete"]
    try:
        done = subprocess.run(  # noqa: S603 -- this Python's compiler
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        msg = f"{compiler[0]} cannot compile the library: {exc}"
        raise LoadError(msg) from exc
    if done.returncode:
        msg = f"{shlex.join(command)} failed with {done.returncode}:\n{done.stderr.strip()}"
        raise LoadError(msg)
    source.unlink()
    return library


def _write_source(descriptor: bytes, folders: list[str], source: Path) -> None:
    try:
        import cffi  # noqa: PLC0415 -- an extra
    except ImportError as exc:
        msg = (
            f"to export needs the package cffi, which cannot be imported ({exc}): "
            '`pip install "cartridge-native[export]"`'
        )
        raise LoadError(msg) from exc
    set_up = _SET_UP.format(folders=folders).encode(errors="surrogateescape")
    texts = {"DESCRIPTOR": descriptor, "PYTHON": os.fsencode(sys.executable), "SET_UP": set_up}
    # Modules of cffi in one process need different names.
    module = f"_cartridge_{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}"
    before = [f"static const char {n}[] = {_in_c(text)};" for n, text in texts.items()]
    before += [f"#define MODULE PyInit_{module}", "PyMODINIT_FUNC MODULE(void);"]
    ffi = cffi.FFI()
    ffi.cdef(_FUNCTIONS)
    text = "\n".join([*before, (_HERE / "library.c").read_text()])
    ffi.set_source(module, text, compiler_verbose=0)  # else it prints to stdout
    ffi.emit_c_code(str(source))


def _in_c(text: bytes) -> str:
    return "{" + ",".join(map(str, [*text, 0])) + "}"


def _compiler() -> list[str]:
    """Give the compiler that this Python was made by, or any."""
    known = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    for command in (known, ["cc"]):
        if shutil.which(command[0]):
            return command
    msg = f"to export needs a C compiler, and there is neither {known[0]} nor cc; install one"
    raise LoadError(msg)


def _python_library() -> Path:
    """Find this Python's shared library."""
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        msg = f"{sys.executable} is installed without its headers; install python3-dev or the like"
        raise LoadError(msg)
    name = sysconfig.get_config_var("INSTSONAME") or ""
    for variable in ("LIBDIR", "LIBPL"):
        library = Path(sysconfig.get_config_var(variable) or "", name)
        if library.suffix != ".a" and library.is_file():
            return library
    msg = (
        f"{sys.executable} has no shared library, which a program in C needs to run it; export "
        "with a Python that was built with --enable-shared"
    )
    raise LoadError(msg)
