"""Chat templates are Jinja as transformers runs it, in a sandbox, and fail by name."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_gguf.chat_template import render

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> & 'you' é"},
]

TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]


def rendered(template: str, *, of_request: bool = False, tools: bool = False) -> str:
    """Render a template with the chat."""
    return render(
        template, CHAT, TOOLS if tools else (), bos="<s>", eos="</s>", of_request=of_request
    )


WRITTEN = {
    "the-ends-of-a-sequence": ("{{ bos_token }}-{{ eos_token }}", "<s>-</s>"),
    "the-answer-is-asked-for": ("{% if add_generation_prompt %}A:{% endif %}", "A:"),
    "no-tools-are-offered": ("{{ tools is none }} {{ documents is none }}", "True True"),
    "blocks-are-trimmed": ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    "text-is-not-escaped": ("{{ messages[1].content }}", "Hi <b> & 'you' é"),
    "json-is-not-escaped": ("{{ messages[1].content | tojson }}", "\"Hi <b> & 'you' é\""),
    "json-takes-an-indent": ("{{ {'a': [1]} | tojson(indent=1) }}", '{\n "a": [\n  1\n ]\n}'),
    "json-in-ascii": ("{{ 'é' | tojson(ensure_ascii=True) }}", '"\\u00e9"'),
    "loops-can-be-left": (
        "{% for m in messages %}{% if loop.index0 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
        "system",
    ),
    "loops-can-be-gone-on-with": (
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}",
        "x",
    ),
    "marks-for-training-are-read-over": (
        "a{% generation %}{{ messages[0].role }}{% endgeneration %}b",
        "asystemb",
    ),
    "what-is-undefined-is-empty": ("[{{ messages[0].name }}{{ nothing }}]", "[]"),
}


@pytest.mark.parametrize(("template", "text"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_a_template_writes(template: str, text: str) -> None:
    """A template has the names, filters and statements that models' templates use."""
    assert rendered(template) == text


def test_a_template_is_shown_the_tools() -> None:
    """In the form that transformers shows them."""
    template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    assert json.loads(rendered(template, tools=True)) == TOOLS[0]


def test_a_template_knows_the_day() -> None:
    """``strftime_now`` gives the time as it is asked for."""
    assert re.fullmatch(r"20\d\d", rendered("{{ strftime_now('%Y') }}"))
    assert rendered("{{ strftime_now('%B') }}") == datetime.now().strftime("%B")


def test_error_a_template_refuses_the_messages() -> None:
    """What a template says of the messages is an error about them, with its words."""
    with pytest.raises(InvalidArgumentError, match="no system role here") as caught:
        rendered("{{ raise_exception('no system role here') }}")
    assert caught.value.arg == "request.messages"


BROKEN = {
    "an-open-block": "{% for m in messages %}",
    "an-unknown-filter": "{{ messages | nonesuch }}",
    "an-undefined-thing-inside": "{{ nothing.inside }}",
    "a-wrong-type": "{{ 1 + 'a' }}",
    "a-division-by-zero": "{{ 1 // 0 }}",
    "another-file": "{% include '/etc/passwd' %}",
    "the-way-out-through-a-class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the-way-out-through-a-function": "{{ raise_exception.__globals__.keys() }}",
    "the-way-out-through-format": "{{ '{0.__class__}'.format('') }}{{ ''['__class__'].x }}",
    "a-changed-message": "{{ messages.append(1) }}",
    "a-range-without-end": "{% for i in range(10 ** 9) %}{% endfor %}",
    "a-macro-that-calls-itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


@pytest.mark.parametrize("template", BROKEN.values(), ids=BROKEN.keys())
def test_error_a_template_that_fails(template: str) -> None:
    """It is the model's fault, or the caller's, by whose template it is; never a way out."""
    with pytest.raises(BackendError, match="the model's chat template fails") as of_model:
        rendered(template)
    assert of_model.value.__cause__ is not None
    with pytest.raises(InvalidArgumentError, match="chat_template: it fails") as of_request:
        rendered(template, of_request=True)
    assert of_request.value.arg == "request.chat_template"


def test_error_a_syntax_error_says_where() -> None:
    """The line of a mistake is in the message."""
    with pytest.raises(BackendError, match=r"TemplateSyntaxError, line 3"):
        rendered("a\nb\n{% if %}")
