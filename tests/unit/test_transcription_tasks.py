"""Sounds become text by a cartridge that takes them whole, or one that takes them in chunks."""

from __future__ import annotations

import pytest

from cartridge_core.errors import BackendError, NoRouteError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks import TranscriptPiece, stream_transcribe, transcribe
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

LANGUAGE = fake_arg("language", "string")


def transcribe_cap():
    """Declare the cap; its main argument may come in chunks."""
    gives = "media:enc=utf-8;record;transcription"
    return fake_cap("fake;transcribe", LANGUAGE, takes="media:audio", gives=gives, streaming=True)


def record(text, start_s=0.0, end_s=1.0, **more):
    """Make what a cartridge says of an utterance."""
    segments = [{"start_s": start_s, "end_s": end_s, "text": text}] if text else []
    return {"text": text, "language": "en" if text else None, "segments": segments, **more}


class Whole(BatchEcho):
    """Says what it was given."""

    plugin_name = "whole"
    descriptor = fake_descriptor("whole-transcription", "batch", caps=[transcribe_cap()])

    @hookimpl
    def cartridge_infer(self, session, value):
        """Give one record."""
        return Result(ResultKind.FINAL, record(f" {value!r}"))


class Stream(StreamingEcho):
    """Says each chunk, a letter at a time; a chunk without letters is silence."""

    plugin_name = "stream"
    descriptor = fake_descriptor(
        "stream-transcription", "streaming", caps=[transcribe_cap()], partial="replace"
    )

    @hookimpl
    def cartridge_pull(self, session):
        """Give PARTIALs, an ENDPOINT and a FINAL."""
        while session.chunks and not session.done:
            said, segment = session.chunks.pop(0).decode(), session.segment
            for count in range(1, len(said) + 1):
                partial = Result(ResultKind.PARTIAL, record(f" {said[:count]}"), segment=segment)
                session.done.append(partial)
            if said:
                session.done.append(Result(ResultKind.ENDPOINT, segment=segment, end_s=1.0))
            final = record(f" {said}" if said else "")
            session.done.append(
                Result(ResultKind.FINAL, final, segment=segment, start_s=0.0, end_s=1.0)
            )
            session.segment += 1
        return session.done.pop(0) if session.done else None


def test_a_whole_sound_has_one_record():
    """The text, its segments and its language are those of the record."""
    with registry_of(Whole(), Stream()) as registry:
        found = transcribe(registry, b"tea")
    assert (found.text, found.language) == ("b'tea'", "en")
    assert [segment["text"] for segment in found.segments] == [" b'tea'"]
    assert len(found.records) == 1


def test_the_utterances_of_a_stream_are_joined():
    """One that takes chunks gives a record for each utterance."""
    with registry_of(Whole(), Stream()) as registry:
        chunks = iter([b"", b"tea", b"hot"])
        found = transcribe(registry, chunks, cartridge_id="stream-transcription")
    assert (found.text, found.language) == ("tea hot", "en")
    assert [segment["text"] for segment in found.segments] == [" tea", " hot"]
    assert len(found.records) == 3


def test_nobody_speaks():
    """There is no text, and no language."""
    with registry_of(Stream()) as registry:
        found = transcribe(registry, iter([b""]))
        assert (found.text, found.language, found.segments) == ("", None, ())
        assert transcribe(registry, iter([])).records == ()
        assert list(stream_transcribe(registry, iter([b""]))) == []


def test_a_stream_gives_pieces():
    """Each takes the place of the one before it, until one is final; an ENDPOINT is none."""
    with registry_of(Whole(), Stream()) as registry:
        found = list(stream_transcribe(registry, iter([b"tea", b"ok"])))
    assert [(piece.segment, piece.text, piece.is_final) for piece in found] == [
        (0, "t", False),
        (0, "te", False),
        (0, "tea", False),
        (0, "tea", True),
        (1, "o", False),
        (1, "ok", False),
        (1, "ok", True),
    ]
    assert isinstance(found[0], TranscriptPiece)
    assert (found[3].start_s, found[3].end_s) == (0.0, 1.0)


def joined(chunks):
    """Give what a cartridge that takes whole sounds makes of chunks."""
    with registry_of(Whole()) as registry:
        (piece,) = stream_transcribe(registry, chunks)
    assert piece.is_final
    return piece.text


def test_chunks_are_joined_where_only_whole_sounds_are_taken():
    """Bytes one after the other, arrays along their first axis; one sound stays as it is."""
    np = pytest.importorskip("numpy")
    assert joined([b"te", b"a"]) == "b'tea'"
    assert joined(b"tea") == "b'tea'"
    assert joined(iter([np.ones(1), np.zeros(2)])) == repr(np.array([1.0, 0.0, 0.0]))
    assert joined(np.ones(2)) == repr(np.ones(2))


def test_closing_the_pieces_cancels():
    """Whoever stops reading stops the work."""
    read: list[None] = []

    def endless():
        while True:
            read.append(None)
            yield b"tea"

    with registry_of(Stream()) as registry:
        pieces = stream_transcribe(registry, endless())
        next(pieces)
        pieces.close()
    assert len(read) < 100


def test_arguments_are_passed_on():
    """What the cap declares may be given, and nothing else."""
    with registry_of(Whole()) as registry:
        assert transcribe(registry, b"tea", language="en").text == "b'tea'"
        with pytest.raises(Exception, match="pause_s"):
            transcribe(registry, b"tea", pause_s=1.0)


def test_error_nothing_installed_hears():
    """What could be installed is said at once."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(NoRouteError, match="cartridge-whisper"):
            transcribe(registry, b"tea")
        with pytest.raises(NoRouteError, match="cartridge-whisper"):
            stream_transcribe(registry, [b"tea"])


def test_error_something_else_than_a_record():
    """A cartridge that gives no record of this kind is named."""

    class Silent(Whole):
        @hookimpl
        def cartridge_infer(self, session, value):
            return Result(ResultKind.FINAL, {"spoken": "tea"})

    with registry_of(Silent()) as registry, pytest.raises(BackendError, match=r"whole-.*text"):
        transcribe(registry, b"tea")
