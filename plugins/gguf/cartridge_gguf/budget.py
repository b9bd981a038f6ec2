"""How many tokens an answer may have: what was asked for, and what the context holds."""

from __future__ import annotations

from cartridge_core.errors import InvalidArgumentError

__all__ = ["ContextOverflowError", "allowance"]


class ContextOverflowError(InvalidArgumentError):
    """
    Prompt and answer do not fit into the context.

    Attributes:
        prompt_tokens: How long the prompt is.
        max_tokens: How long the answer may be, as asked.
        context_length: How many tokens the context holds, prompt and answer together.
        allowance: How many this prompt leaves of them; 0 where it leaves none.
    """

    def __init__(
        self,
        message: str,
        *,
        arg: str | None = None,
        prompt_tokens: int = 0,
        max_tokens: int = 0,
        context_length: int = 0,
    ) -> None:
        super().__init__(message, arg=arg, value=max_tokens, rule="within the context")
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_length = context_length
        self.allowance = max(0, context_length - prompt_tokens)


def allowance(
    prompt_tokens: int,
    max_tokens: int,
    context_length: int,
    *,
    is_clamped: bool,
    picture_tokens: int = 0,
) -> int:
    """
    Say how many tokens may come.

    Args:
        prompt_tokens: How long the prompt is.
        max_tokens: How many are asked for at most.
        context_length: How many tokens the context holds, prompt and answer together.
        is_clamped: Whether an answer that does not fit may be shorter.
        picture_tokens: How many of the prompt's a picture takes.

    Raises:
        ContextOverflowError: The prompt alone does not fit; or, unless ``is_clamped``, the prompt
            and as many tokens as are asked for do not.
    """
    left = context_length - prompt_tokens
    if left >= 0 and (max_tokens <= left or is_clamped):
        return min(max_tokens, left)
    if left < 0:
        arg, what, cure = "request.prompt", "the prompt alone does not fit", "shorten it"
    else:
        arg, what = "request.max_tokens", "prompt and answer do not fit"
        cure = f"ask for at most {left}, set overflow='clamp', shorten the prompt"
    seen = f" ({picture_tokens} of them are the picture's)" if picture_tokens else ""
    msg = (
        f"{arg}: {what} into the context: the prompt has {prompt_tokens} tokens{seen}, max_tokens "
        f"is {max_tokens}, the context holds {context_length}; {cure}, or open the model with a "
        "larger max_context_length"
    )
    raise ContextOverflowError(
        msg,
        arg=arg,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        context_length=context_length,
    )
