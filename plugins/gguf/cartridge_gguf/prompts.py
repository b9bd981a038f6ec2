"""
From a request to the tokens that a model reads.

A model with a chat template gets the messages, or the prompt as a user's message, through it; one
without gets the prompt as it is. Control tokens, such as the one that ends a turn, come from the
template alone: where the caller's own text spells one, the model reads it as plain text, so that
what somebody wrote cannot end his turn. Who wants to write control tokens gives a
``chat_template`` with them. Control tokens are those that the model's file marks so; what it marks
as *user defined* is a token wherever it is spelt, as always in llama.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_gguf.tokenizing import continued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.context import Context
    from cartridge_gguf.engine import TextModel
    from cartridge_gguf.request import Request

__all__ = ["Prompter"]

_PRIVATE_USE = range(0xF0000, 0xFFFFE)


@attrs.frozen
class Prompter:
    """Makes the prompts of one model."""

    _model: TextModel

    _control: re.Pattern[str] | None
    """Finds the first character of a control token's text; None where the model has none."""

    @classmethod
    def of(cls, model: TextModel) -> Prompter:
        """Make the prompter of a model."""
        texts = "|".join(re.escape(text) for text in model.control_texts)
        return cls(model, re.compile(f"(?={texts}).", re.DOTALL) if texts else None)

    def tokens(self, request: Request, context: Context) -> list[int]:
        """
        Give the tokens of a request.

        Args:
            request: The request.
            context: Is told where a part of the request cannot be shown to the model.

        Raises:
            InvalidArgumentError: There are messages and no chat template, the template refuses
                them, or they come to no token at all.

            BackendError: The model's chat template is broken.
        """
        template = request.chat_template or self._model.chat_template
        if template is None:
            tokens = self._raw(request, context)
        else:
            mark = next(_unused_characters(template, request))
            tokens = self._begin(self._write(template, request, mark, context), mark, context)
        if not tokens:
            arg, rule = "request.prompt", "at least one token"
            msg = f"{arg}: it comes to no token, and the model must be told {rule}"
            raise InvalidArgumentError(msg, arg=arg, value=request.prompt, rule=rule)
        return tokens

    def tokens_around(self, request: Request, context: Context) -> tuple[list[int], list[int]]:
        """
        Give the tokens before and after a picture that the prompt of a request begins with.

        Nothing in the prompt can be taken for a picture: where it stands is known by a character
        that is in no text.

        Args:
            request: The request; it has a prompt, and no template of its own.
            context: Is told where a part of the request cannot be shown to the model.

        Raises:
            InvalidArgumentError: The template refuses the prompt.

            BackendError: The model's chat template is broken, or does not write a user's message
                once.
        """
        template = self._model.chat_template
        if template is None:
            before = self._model.tokenize("", special=False, add_bos=True)
            return before, self._raw(request, context, add_bos=False)
        unused = _unused_characters(template, request)
        mark, picture = next(unused), next(unused)
        text = self._write(template, request, mark, context, picture=picture)
        before_text, _, after_text = text.partition(picture)
        first, *others = after_text.split(mark)
        after = self._model.tokenize(first, special=True, add_bos=False, context=context)
        return self._begin(before_text, mark, context), after + self._go_on(others, context)

    def _raw(self, request: Request, context: Context, *, add_bos: bool = True) -> list[int]:
        """Tokenise the prompt as it is."""
        if request.prompt is None:
            arg = "request.messages"
            msg = f"{arg}: the model has no chat template; give one in chat_template, or a prompt"
            raise InvalidArgumentError(msg, arg=arg, value=request.messages, rule="a prompt")
        if request.system_prompt is not None:
            what = "the model has no chat template that would say it; put it into the prompt"
            context.log("warning", f"system_prompt is left out: {what}")
        if request.tools:
            context.log("warning", "the tools are not told: the model has no chat template")
        return self._model.tokenize(request.prompt, special=False, add_bos=add_bos, context=context)

    def _write(
        self, template: str, request: Request, mark: str, context: Context, picture: str = ""
    ) -> str:
        """
        Let the template write the messages, the last of which begins with a picture.

        Args:
            template: The template.
            request: Has the messages.
            mark: Is put into the text of every control token.
            context: Is told where the system prompt is left out.
            picture: What is written in the place of the picture; empty for none.
        """
        system = self._cover((request.system_prompt or "").strip(), mark)
        messages = [
            {key: self._cover(text, mark) for key, text in message.items()}
            for message in request.chat
        ]
        tools = cast("Sequence[Mapping[str, object]]", self._covered(request.tools, mark))
        if not picture:
            text = self._render(template, messages, tools, request)
        else:
            text = self._render_with_picture(template, messages, request, picture)
        if system not in text:
            what = "the chat template does not write it; put it into the prompt"
            context.log("warning", f"system_prompt is left out: {what}")
        for tool in tools:
            name = cast("Mapping[str, str]", tool["function"])["name"]
            if name not in text:
                what = "the chat template does not write it; describe it in the prompt"
                context.log("warning", f"the tool {name} is not told: {what}")
        return text

    def _render_with_picture(
        self, template: str, messages: Sequence[Mapping[str, str]], request: Request, picture: str
    ) -> str:
        """Write messages with contents that are texts or, where it wants these, lists of parts."""
        *others, last = messages
        plain = [*others, {**last, "content": picture + last["content"]}]
        parted = [
            *({**message, "content": _parts(message["content"])} for message in others),
            {**last, "content": _parts(picture, last["content"])},
        ]
        failure: Exception | None = None
        for form in (plain, parted):
            try:
                text = self._render(template, form, (), request)
            except (InvalidArgumentError, BackendError) as exc:
                failure = failure or exc
                continue
            if text.count(picture) == 1:
                return text
        if failure is not None:
            raise failure
        msg = "the model's chat template does not write a user's message once, and so no picture"
        raise BackendError(msg)

    def _render(
        self,
        template: str,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]],
        request: Request,
    ) -> str:
        from cartridge_gguf import chat_template  # noqa: PLC0415 -- brings Jinja

        if not chat_template.is_jinja(template):
            from cartridge_gguf._named_chat import write_chat  # noqa: PLC0415 -- the backend

            return write_chat(template, messages)
        return chat_template.render(
            template,
            messages,
            tools,
            bos=self._model.bos,
            eos=self._model.eos,
            of_request=request.chat_template is not None,
        )

    def _begin(self, text: str, mark: str, context: Context) -> list[int]:
        """Tokenise what a template wrote, from its beginning."""
        bos = self._model.bos
        add_bos = bos == "" or not text.startswith(bos)
        first, *others = text.split(mark)
        begun = self._model.tokenize(first, special=True, add_bos=add_bos, context=context)
        return begun + self._go_on(others, context)

    def _go_on(self, texts: Sequence[str], context: Context) -> list[int]:
        """Tokenise texts that go on inside a word."""
        tokenize = partial(self._model.tokenize, special=True, add_bos=False, context=context)
        return [token for text in texts for token in continued(text, tokenize)]

    def _cover(self, text: str, mark: str) -> str:
        """Put a mark into the text of every control token, after its first character."""
        if self._control is None:
            return text
        return self._control.sub(lambda found: found[0] + mark, text)

    def _covered(self, value: object, mark: str) -> object:
        """Do the same with every text of JSON data."""
        if isinstance(value, str):
            return self._cover(value, mark)
        if isinstance(value, Mapping):
            items = value.items()
            return {self._cover(key, mark): self._covered(item, mark) for key, item in items}
        if isinstance(value, Sequence):
            return [self._covered(item, mark) for item in value]
        return value


def _unused_characters(template: str, request: Request) -> Iterator[str]:
    """Find characters that are in none of a prompt's texts."""
    texts = [text for message in request.chat for text in message.values()]
    tools = json.dumps(request.tools, ensure_ascii=False)
    used = frozenset("".join([template, tools, *texts]))
    return (chr(code) for code in _PRIVATE_USE if chr(code) not in used)


def _parts(*texts: str) -> list[Mapping[str, str]]:
    """Give a content in the form that some templates for pictures want."""
    return [{"type": "text", "text": text} for text in texts]
