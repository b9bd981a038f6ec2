"""How many tokens an answer may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_gguf.budget import ContextOverflowError, allowance

SIZES = st.integers(0, 300)


@given(prompt=SIZES, wanted=SIZES, context=SIZES, is_clamped=st.booleans())
def test_an_answer_fits_or_is_refused(
    prompt: int, wanted: int, context: int, is_clamped: bool
) -> None:
    """What may come fits into the context with the prompt, and is never more than was wanted."""
    fits = prompt + wanted <= context or (is_clamped and prompt <= context)
    if fits:
        allowed = allowance(prompt, wanted, context, is_clamped=is_clamped)
        assert allowed == min(wanted, context - prompt)
        return
    with pytest.raises(ContextOverflowError, match=r"do(es)? not fit") as caught:
        allowance(prompt, wanted, context, is_clamped=is_clamped)
    error = caught.value
    assert (error.prompt_tokens, error.max_tokens) == (prompt, wanted)
    assert (error.context_length, error.allowance) == (context, max(0, context - prompt))


def test_error_the_message_says_what_to_do() -> None:
    """It has the numbers, and the ways out."""
    with pytest.raises(ContextOverflowError) as caught:
        allowance(250, 16, 256, is_clamped=False)
    text = str(caught.value)
    for words in ("250 tokens", "is 16", "holds 256", "at most 6", "'clamp'", "max_context_length"):
        assert words in text
    assert caught.value.arg == "request.max_tokens"


def test_error_a_prompt_that_is_too_long_by_itself() -> None:
    """A shorter answer would not help, and is not offered."""
    with pytest.raises(ContextOverflowError, match="prompt alone does not fit") as caught:
        allowance(257, 0, 256, is_clamped=True)
    assert "clamp" not in str(caught.value)
    assert caught.value.arg == "request.prompt"
