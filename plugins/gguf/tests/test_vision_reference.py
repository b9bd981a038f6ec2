"""Descriptions against llama-cpp-python's own chat handlers, called directly."""

from __future__ import annotations

import base64
import contextlib
import io
from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image
from tiny_models import write_llama, write_projector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from conftest import Noise, OpenEyes

    Ask = Callable[[Image.Image, str], str]
    OpenReference = Callable[[Path, str], Ask]
    Complete = Callable[..., Mapping[str, list[Mapping[str, Mapping[str, str]]]]]

SYSTEM = "Be brief."
LIMIT = 32
PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% else %}\nUSER: "
    "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}\nASSISTANT: {% endif %}"
)
MODELS = {
    "llava": ("Llava15ChatHandler", LLAVA, "mlp"),
    "templates-own": ("MTMDChatHandler", PARTS, "mlp"),
    "m-rope": ("MTMDChatHandler", PARTS, "qwen2vl_merger"),
    "read-as-a-whole": ("MTMDChatHandler", PARTS, "gemma3"),
}
PROMPTS = ["what is this", "hello world", "", "is it red? yes or no", "a"]


@pytest.fixture
def open_reference() -> Iterator[OpenReference]:
    """Open a folder's model in llama-cpp-python, with one of its handlers."""
    import llama_cpp
    from llama_cpp import llama_chat_format

    with contextlib.ExitStack() as stack:

        def run(folder: Path, name: str) -> Ask:
            handler = getattr(llama_chat_format, name)(str(folder / "mmproj.gguf"), verbose=False)
            model = llama_cpp.Llama(
                str(folder / "model.gguf"),
                chat_handler=handler,
                n_ctx=512,
                n_threads=1,
                n_threads_batch=1,
                verbose=False,
            )
            stack.callback(model.close)
            system = SYSTEM if name.startswith("Llava") else [{"type": "text", "text": SYSTEM}]

            def ask(picture: Image.Image, prompt: str) -> str:
                buffer = io.BytesIO()
                picture.save(buffer, "PNG")
                url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
                image = {"type": "image_url", "image_url": {"url": url}}
                chat = [
                    {"role": "system", "content": system},
                    {"role": "user", "content": [image, {"type": "text", "text": prompt}]},
                ]
                cast("Callable[[], None]", model.reset)()
                complete = cast("Complete", model.create_chat_completion)
                answer = complete(chat, max_tokens=LIMIT, temperature=0, repeat_penalty=1)
                return answer["choices"][0]["message"]["content"]

            return ask

        yield run


@pytest.mark.parametrize(("handler", "template", "kind"), MODELS.values(), ids=MODELS.keys())
def test_greedy_text_is_the_references(
    open_eyes: OpenEyes,
    open_reference: OpenReference,
    noise: Noise,
    tmp_path: Path,
    handler: str,
    template: str,
    kind: str,
) -> None:
    """
    The same picture and prompt give the same text.

    The reference may write on past its limit, to the end of a character that it has begun.
    """
    sections = [2, 3, 3, 0] if kind == "qwen2vl_merger" else None
    write_llama(tmp_path / "model.gguf", chat_template=template, rope_sections=sections)
    write_projector(tmp_path / "mmproj.gguf", 64, kind=kind)
    eyes, ask = open_eyes(tmp_path), open_reference(tmp_path, handler)
    for number, prompt in enumerate(PROMPTS):
        picture = noise(number, 20 + 7 * number, 30 + 3 * number)
        record = eyes.look(picture, prompt=prompt, system_prompt=SYSTEM, max_tokens=LIMIT)
        expected, text = ask(Image.fromarray(picture), prompt), str(record["generated_text"])
        if record["finish_reason"] == "stop":
            assert text == expected
        else:
            assert record["tokens_generated"] == LIMIT
            assert text
            assert expected.startswith(text)
