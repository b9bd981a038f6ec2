"""Typed one-liners ask for the caps they name, and give plain, typed values."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import BackendError, InvalidArgumentError, NoRouteError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.progress import Log, Progress
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks import (
    Generation,
    describe_image,
    embed_image,
    generate_text,
    model_info,
    stream_text,
    vocabulary,
)
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = "media:fmt=json;llm-generation-request;record"
SPEC = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "metadata": {"pack": True},
}


def language_cap(markers, gives):
    """Declare a cap of a language model."""
    cap = fake_cap(markers, SPEC, takes=REQUEST, gives=gives)
    return {**cap, "aliases": [markers.replace(";", "-")]}


FREE = language_cap("fake;llm;llm-inference;ml-model", "media:fmt=ndjson;llm-text-stream")


class Writer(StreamingEcho):
    """Writes what it was asked, word by word, and then how."""

    plugin_name = "writer"
    descriptor = fake_descriptor(
        "writer-text",
        "streaming",
        caps=[
            FREE,
            language_cap(
                "constrained;fake;llm;llm-inference-constrained;ml-model",
                "media:fmt=ndjson;llm-text-stream",
            ),
        ],
        partial="append",
    )
    pieces: tuple[str, ...] = ("tea ", "is ", "hot")

    @hookimpl
    def cartridge_pull(self, session):
        """Give the pieces, then the record."""
        if not session.flushed or session.over:
            return None
        if len(session.done) < len(self.pieces):
            session.done.append(self.pieces[len(session.done)])
            session.context.progress(len(session.done) / len(self.pieces))
            return Result(ResultKind.PARTIAL, session.done[-1])
        session.over = True
        record = {"generated_text": "tea is hot", "finish_reason": "stop"}
        asked = {"request": session.chunks[0], "is_constrained": "constrained" in session.cap}
        return Result(ResultKind.FINAL, {**record, **asked})


class Terse(Writer):
    """Writes all at once."""

    plugin_name = "terse"
    descriptor = fake_descriptor("terse-text", "streaming", caps=[FREE])
    pieces = ()


class Inspector(BatchEcho):
    """Knows a model of three tokens."""

    plugin_name = "inspector"
    descriptor = fake_descriptor(
        "inspector-model",
        caps=[
            language_cap(
                "fake;llm;llm-model-info;ml-model", "media:fmt=json;llm-model-info;record"
            ),
            language_cap("fake;llm;llm-vocab;ml-model", "media:fmt=json;llm-vocab-response;record"),
        ],
    )
    info: object = {"architecture": "llama", "context_length": 64, "supports_chat": True}
    tokens: tuple[dict[str, object], ...] = tuple(
        {"id": index, "bytes": b64encode(raw).decode()}
        for index, raw in enumerate([b"a", b"\xff", b""])
    )

    @hookimpl
    def cartridge_infer(self, session, value):
        """Give one of the records."""
        assert value == {}
        if "llm-vocab" in session.cap:
            return Result(ResultKind.FINAL, {"vocab": list(self.tokens), "vocab_size": 3})
        return Result(ResultKind.FINAL, self.info)


PICTURES = {
    "name": "images",
    "media_urn": "media:image",
    "required": True,
    "is_sequence": True,
    "sources": [{"stdin": "media:image"}, {"position": 0}],
}
EMBEDDING = fake_cap(
    "fake;generate-image-embeddings;ml-model",
    takes="media:image",
    gives="media:embedding-vector;enc=utf-8;record",
)
DESCRIPTION = fake_cap(
    "describe-image;fake;ml-model;vision",
    fake_arg("prompt", "string", "Describe this image."),
    fake_arg("max_tokens", "integer", 256),
    takes="media:image",
    gives="media:enc=utf-8;ext=txt;image-description;plain-text",
)


class Embedder(BatchEcho):
    """Gives a row for every picture."""

    plugin_name = "embedder"
    descriptor = fake_descriptor(
        "embedder-image",
        caps=[{**EMBEDDING, "aliases": ["embed-image"], "args": [PICTURES]}],
    )

    @hookimpl
    def cartridge_infer(self, session, value):
        """Give the pictures in the place of vectors."""
        rows = value if isinstance(value, list) else [value]
        return Result(ResultKind.FINAL, {"vectors": rows, "is_list": isinstance(value, list)})


class Describer(Terse):
    """Says what it was shown, and how it was asked."""

    plugin_name = "describer"
    descriptor = fake_descriptor(
        "describer-image", "streaming", caps=[{**DESCRIPTION, "aliases": ["describe"]}]
    )

    @hookimpl
    def cartridge_session_begin(self, handle, cap, parameters, context):
        """Keep the arguments."""
        session = super().cartridge_session_begin(handle, cap, parameters, context)
        session.parameters = parameters
        return session

    @hookimpl
    def cartridge_pull(self, session):
        """Give the record."""
        if not session.flushed or session.over:
            return None
        session.over = True
        record = {"generated_text": "a cat", "finish_reason": "stop", "seen": session.chunks[0]}
        return Result(ResultKind.FINAL, {**record, **session.parameters})


@pytest.fixture
def registry():
    """Give a registry that writes and inspects."""
    with registry_of(Writer(), Inspector()) as registry:
        yield registry


def test_a_text_is_written(registry):
    """The text and its end are values of their own; the rest is in the record."""
    found = generate_text(registry, "What is tea?", max_tokens=9, seed=None)
    assert (found.text, found.finish_reason) == ("tea is hot", "stop")
    assert found.record["request"] == {"prompt": "What is tea?", "max_tokens": 9}
    assert not found.record["is_constrained"]


def test_a_chat_is_answered(registry):
    """Messages are no prompt."""
    chat = ({"role": "user", "content": "What is tea?"},)
    assert generate_text(registry, chat).record["request"] == {"messages": list(chat)}


@pytest.mark.parametrize("name", ["grammar", "json_schema", "constraint"])
def test_a_constraint_asks_for_the_cap_that_must_keep_it(registry, name):
    """A cartridge that writes freely alone is not asked."""
    generate: Callable[..., Generation] = generate_text
    assert generate(registry, "tea", **{name: {}}).record["is_constrained"]
    with registry_of(Terse()) as free, pytest.raises(NoRouteError):
        generate(free, "tea", **{name: {}})


@pytest.mark.parametrize(
    ("images", "rows", "is_list"),
    [
        pytest.param(b"one", [b"one"], False, id="one"),
        pytest.param([b"one", b"two"], [b"one", b"two"], True, id="list"),
        pytest.param((b"one",), [b"one"], True, id="tuple"),
        pytest.param([], [], True, id="none"),
    ],
)
def test_pictures_are_embedded(images, rows, is_list):
    """One picture or several go to the cap that takes pictures."""
    with registry_of(Embedder(), Writer()) as registry:
        found = embed_image(registry, images)
    assert (found.vectors, found.record["is_list"]) == (rows, is_list)


def test_a_picture_is_described():
    """What is not said is left to the cartridge; what is said reaches it."""
    with registry_of(Describer(), Writer()) as registry:
        found = describe_image(registry, b"picture")
        asked = describe_image(registry, b"picture", prompt="What is it?", max_tokens=5)
    assert (found.text, found.finish_reason) == ("a cat", "stop")
    assert found.record["seen"] == b"picture"
    assert (found.record["prompt"], found.record["max_tokens"]) == ("Describe this image.", 256)
    assert (asked.record["prompt"], asked.record["max_tokens"]) == ("What is it?", 5)


def test_a_text_comes_in_pieces(registry):
    """Joined, they are the text; progress goes where it is asked for."""
    events: list[Progress | Log] = []
    pieces = list(stream_text(registry, "tea", on_progress=events.append))
    assert pieces == ["tea ", "is ", "hot"]
    assert any(isinstance(event, Progress) for event in events)
    assert list(stream_text(registry, "tea")) == pieces


def test_a_text_without_pieces_comes_at_once():
    """A cartridge need not give pieces."""
    with registry_of(Terse()) as registry:
        assert list(stream_text(registry, "tea")) == ["tea is hot"]


def test_a_stream_that_is_left_is_cancelled(registry):
    """Whoever has read enough stops reading."""
    pieces = stream_text(registry, "tea")
    assert next(pieces) == "tea "
    pieces.close()
    assert generate_text(registry, "tea").text == "tea is hot"


def test_what_a_model_is(registry):
    """What it does not say is None."""
    info = model_info(registry)
    assert (info.architecture, info.context_length, info.layer_count) == ("llama", 64, None)
    assert info.supports_chat
    assert not info.supports_tools


def test_what_tokens_a_model_has(registry):
    """They are bytes, which need not be text."""
    assert vocabulary(registry).pieces == (b"a", b"\xff", b"")


@pytest.mark.parametrize("token", [{}, {"bytes": "?"}], ids=["missing", "no-base64"])
def test_error_a_token_without_its_bytes(token):
    """Nothing is made up in their place."""
    inspector = Inspector()
    inspector.tokens = (token,)
    with registry_of(inspector) as registry, pytest.raises(BackendError, match="inspector-model"):
        vocabulary(registry)


def test_error_another_record():
    """A cartridge that gives something else is named."""
    inspector = Inspector()
    inspector.info = {"vocab_size": 3}
    with registry_of(inspector) as registry, pytest.raises(BackendError, match="supports_chat"):
        model_info(registry)


@pytest.mark.parametrize("prompt", [3, None, b"x", ["a"], {"role": "user"}], ids=repr)
@pytest.mark.parametrize("ask", [stream_text, generate_text])
def test_error_a_prompt_that_is_neither_text_nor_chat(ask, prompt):
    """It is refused by name, before anything is asked."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match=r"^prompt: must be a text, or a list"):
            ask(registry, prompt)
