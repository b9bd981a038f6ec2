"""An open model, and the sessions on it; the handle of the plugin's cartridges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.urn import CapUrn
from cartridge_whisper.files import ModelFiles
from cartridge_whisper.language import LanguageSession
from cartridge_whisper.options import LoadOptions
from cartridge_whisper.settings import Hearing, Settings
from cartridge_whisper.transcription import TranscriptionSession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_whisper._whisper import Whisper
    from cartridge_whisper.options import Decoding
    from cartridge_whisper.sessions import BatchSession

__all__ = ["SpeechModel", "check_language"]


@attrs.define
class SpeechModel:
    """A loaded model, which many sessions may use at once."""

    name: str
    whisper: Whisper

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> SpeechModel:
        """
        Load a pack.

        Raises:
            LoadError: The backend or the model cannot be loaded.

            CancelledError: The context was cancelled.
        """
        files = ModelFiles.read(pack)
        context.progress(0.0, "importing whisper")
        try:
            from cartridge_whisper import _whisper  # noqa: PLC0415 -- heavy
        except (ImportError, OSError) as exc:
            msg = f"whisper cannot be imported ({exc}); pip install cartridge-whisper"
            raise LoadError(msg) from exc
        context.check_cancelled()
        whisper = _whisper.load(files, LoadOptions.read(options), context.check_cancelled)
        return cls(files.name, whisper)

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> BatchSession:
        """
        Begin a session of one of the caps.

        Raises:
            InvalidArgumentError: The model does not know the language, or cannot translate.
        """
        if "detect-language" in CapUrn.parse(cap).tags:
            hearing = Hearing.read(parameters)
            return LanguageSession(self.whisper, self.name, hearing, context)
        settings = Settings.read(parameters)
        check_language(self.whisper, self.name, settings.decoding)
        return TranscriptionSession(self.whisper, self.name, settings, context)

    def close(self) -> None:
        """Let go of the weights."""
        self.whisper.close()


def check_language(whisper: Whisper, name: str, decoding: Decoding) -> None:
    """
    Refuse what a model cannot do.

    Raises:
        InvalidArgumentError: It does not know the language, or cannot translate.
    """
    language = decoding.language
    if language is not None and language not in whisper.languages:
        rule = f"one that {name} knows: {', '.join(whisper.languages)}"
        msg = f"language: must be {rule}; found {language!r}"
        raise InvalidArgumentError(msg, arg="language", value=language, rule=rule)
    if decoding.task == "translate" and not whisper.is_multilingual:
        msg = f"task: {name} knows English alone and cannot translate; take a multilingual model"
        raise InvalidArgumentError(msg, arg="task", value="translate", rule="transcribe")
