"""Libraries that break the ABI are errors with a name, and the host lives on."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import attrs
import native_packs
import pytest

from cartridge_core.errors import (
    AbiMismatchError,
    ActivityTimeoutError,
    BackendError,
    CancelledError,
    CartridgeDiedError,
    CartridgeError,
    InternalError,
    LoadError,
    PreflightError,
    StateError,
)
from cartridge_core.limits import Limits
from cartridge_core.testing import registry_of
from cartridge_core.testing.background import Background
from cartridge_native import plugin

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import MakePack

ECHO = 'cap:echo;in="media:enc=utf-8";out="media:enc=utf-8"'


@attrs.frozen
class Broken:
    """One way to break the ABI, and what a caller meets."""

    switch: str
    error: type[CartridgeError]
    words: str


REFUSED = [
    Broken("NO_VERSION", AbiMismatchError, "exports no ctg_abi_version"),
    Broken("NO_FLUSH", AbiMismatchError, "does not export ctg_flush"),
    Broken("NO_DEPENDENCY", LoadError, "function_of_a_driver"),
    Broken("VERSION_0", AbiMismatchError, "could not set itself up"),
    Broken("VERSION_1_0", AbiMismatchError, "speaks ABI 1.0"),
    Broken("DESCRIPTOR_NULL", AbiMismatchError, "ctg_descriptor_json returned NULL"),
    Broken("DESCRIPTOR_NOT_UTF8", AbiMismatchError, "gives no valid descriptor"),
    Broken("PREFLIGHT_SAYS_NO", PreflightError, "the driver frob is not loaded"),
    Broken("PREFLIGHT_FAILS", PreflightError, "of this thread"),
    Broken("OPEN_GIVES_NULL", BackendError, "ctg_open returned CTG_OK and gave nothing"),
    Broken("OPEN_FAILS", LoadError, r"ctg_open returned CTG_E_LOAD \(-4\): of this thread"),
    Broken("SESSION_GIVES_NULL", BackendError, "ctg_session_begin returned CTG_OK and gave"),
    Broken("SESSION_FAILS", StateError, r"CTG_E_STATE \(-7\): of this cartridge"),
    Broken("STATUS_UNKNOWN", InternalError, "returned -12345, which is no status .* this session"),
    Broken("STATUS_POSITIVE", InternalError, "returned 3, which is no status of the ABI"),
    Broken("RESULT_NULL", BackendError, "ctg_infer returned CTG_OK and gave no result"),
    Broken("KIND_UNKNOWN", BackendError, "a result of kind 77"),
    Broken("KIND_PARTIAL", BackendError, "ctg_infer gave PARTIAL"),
    Broken("PAYLOAD_FAILS", InternalError, "ctg_result_get_payload returned CTG_E_INTERNAL"),
    Broken("PAYLOAD_NULL", BackendError, "a payload of 3 bytes at NULL"),
    Broken("PAYLOAD_TOO_LONG", BackendError, r"a payload of \d{19} bytes"),
    Broken("PAYLOAD_NOT_UTF8", BackendError, "io.output is a text in UTF-8"),
    Broken("ERROR_NOT_UTF8", BackendError, "caf\ufffd is closed"),
]
DIES = [
    Broken("CRASH_AT_LOAD", CartridgeDiedError, "SIGABRT|signal 6"),
    Broken("RESULT_GARBAGE", CartridgeDiedError, "SIGSEGV|signal 11"),
    Broken("CRASH", CartridgeDiedError, "SIGABRT|signal 6"),
    Broken("EXIT", CartridgeDiedError, "status 3"),
]


def ids(cases: list[Broken]) -> list[str]:
    return [case.switch.lower().replace("_", "-") for case in cases]


def pack_of(make_native_pack: MakePack, folder: Path, switch: str) -> Path:
    return make_native_pack("broken", folder, f"-DBROKEN={switch}", "-Wl,-z,lazy")


@pytest.mark.parametrize("case", REFUSED, ids=ids(REFUSED))
def test_error_a_broken_library_is_named(
    case: Broken, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """What can be seen is refused before it does harm, also in this process."""
    pack = pack_of(make_native_pack, tmp_path, case.switch)
    with registry_of(plugin, packs=[pack], isolation="inline") as registry:
        with pytest.raises(case.error, match=case.words) as caught:
            registry.call(ECHO, "tea")
        assert type(caught.value) is case.error


@pytest.mark.parametrize(
    ("switch", "ok", "found"),
    [
        pytest.param("NOTHING", True, "", id="has-all"),
        pytest.param("PREFLIGHT_SAYS_NO", False, "the driver frob is not loaded", id="says-no"),
        pytest.param("PREFLIGHT_FAILS", False, "of this thread", id="by-status"),
    ],
)
def test_preflight_is_an_answer(
    switch: str, ok: bool, found: str, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """What the library finds missing is a check that is not met, and no error."""
    pack = pack_of(make_native_pack, tmp_path, switch)
    with registry_of(plugin, packs=[pack]) as registry:
        report = registry.preflight("native-broken")
    assert [(check.ok, check.found) for check in report.checks] == [(ok, found)]


@pytest.mark.parametrize("case", DIES, ids=ids(DIES))
def test_error_a_library_that_crashes_takes_its_process_alone(
    case: Broken, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A process is where a library runs that does not say otherwise: the host lives on."""
    pack = pack_of(make_native_pack, tmp_path, case.switch)
    with registry_of(plugin, packs=[pack]) as registry:
        for _ in range(2):
            with pytest.raises(case.error, match=case.words):
                registry.call(ECHO, "tea")


def test_error_a_library_that_hangs_is_ended(make_native_pack: MakePack, tmp_path: Path) -> None:
    """A call that gives no sign of life is ended with its process, which heeds no cancel."""
    pack = pack_of(make_native_pack, tmp_path, "HANG")
    with registry_of(plugin, packs=[pack], limits=Limits(activity_timeout_s=1.0)) as registry:
        with pytest.raises(ActivityTimeoutError):
            registry.call(ECHO, "tea")
        begin_s = time.monotonic()
        registry.unload(force=True)
        assert time.monotonic() - begin_s < 10.0


def test_error_a_file_that_is_no_library(make_native_pack: MakePack, tmp_path: Path) -> None:
    """What the loader says of it is told."""
    pack = pack_of(make_native_pack, tmp_path, "NOTHING")
    (pack / "artifacts" / "runtime" / "libbroken.so").write_text("not one")
    registry = registry_of(plugin, packs=[pack], isolation="inline")
    with registry, pytest.raises(LoadError, match="cannot be loaded"):
        registry.open("native-broken", trust="off")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("version", "1.0.1", id="version"),
        pytest.param("license", "Apache-2.0", id="license"),
        pytest.param("task", "copy", id="task"),
        pytest.param(
            "io",
            {"mode": "streaming", "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
            id="mode",
        ),
    ],
)
def test_error_a_library_of_another_descriptor(
    key: str, value: object, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """The pack's descriptor and the built-in one are the same, or the error says where not."""
    other = native_packs.described("broken") | {key: value}
    pack = make_native_pack("broken", tmp_path, built_in=other)
    registry = registry_of(plugin, packs=[pack], isolation="inline")
    with registry, pytest.raises(AbiMismatchError, match=rf"differ in {key};"):
        registry.open("native-broken")


def test_what_was_measured_later_may_differ(make_native_pack: MakePack, tmp_path: Path) -> None:
    """Figures come after the build: they may stand in the pack alone."""
    measured = {"performance": {"measured_on": "a machine", "latency_p50_ms": 2.5}}
    built_in = native_packs.described("broken")
    pack = make_native_pack("broken", tmp_path, stated=built_in | measured, built_in=built_in)
    with registry_of(plugin, packs=[pack], isolation="inline") as registry:
        assert registry.call(ECHO, "tea").payload == "tea"


@pytest.mark.parametrize(
    "switch",
    [
        "NOTHING",
        "KIND_PARTIAL",
        "KIND_UNKNOWN",
        "PAYLOAD_FAILS",
        "PAYLOAD_NOT_UTF8",
        "PAYLOAD_NULL",
    ],
)
def test_results_are_released_once(switch: str, make_native_pack: MakePack, tmp_path: Path) -> None:
    """Every result goes back to the library, also one that is none."""
    pack = pack_of(make_native_pack, tmp_path, switch)
    library = ctypes.CDLL(str(pack / "artifacts" / "runtime" / "libbroken.so"))
    with registry_of(plugin, packs=[pack], isolation="inline") as registry:
        for _ in range(3):
            try:
                registry.call(ECHO, "tea")
            except CartridgeError:
                assert switch != "NOTHING"
            assert library.broken_results_out() == 0


def test_structs_end_where_their_last_field_does(
    make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A library that takes the sizes of 0.1 and no other is served."""
    pack = pack_of(make_native_pack, tmp_path, "SMALL_STRUCTS")
    with registry_of(plugin, packs=[pack], isolation="inline") as registry:
        assert registry.call(ECHO, "tea").payload == "tea"


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_cancel_reaches_a_call_that_is_inside(
    isolation: str, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """From another thread, while the library works; it returns, and the session takes only end."""
    pack = pack_of(make_native_pack, tmp_path, "SLOW")
    registry = registry_of(plugin, packs=[pack], isolation=isolation)
    with registry, registry.open("native-broken") as cartridge, cartridge.session() as session:
        inside = Background(lambda: session.infer("tea"))
        time.sleep(0.2)
        assert inside.is_alive()
        begin_s = time.monotonic()
        session.cancel()
        inside.join(10.0)
        assert time.monotonic() - begin_s < 5.0
        assert isinstance(inside.error, CancelledError)
        with pytest.raises(CancelledError):
            session.infer("tea")
