"""Text generation through a registry: the stream, its end, and the context's limit."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from cartridge_core.errors import CancelledError, InvalidArgumentError, StateError
from cartridge_core.progress import Phase, Progress
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import registry_of
from cartridge_gguf import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cartridge_core.calls import Call
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.registry import Registry

FREE = "cap:llm;llm-inference;ml-model"
CONSTRAINED = "cap:constrained;llm;llm-inference-constrained;ml-model"
ID = "gguf-text-generation"
LIMIT = 256
FREE_URN = (
    'cap:gguf;in="media:fmt=json;llm-generation-request;record";llm;llm-inference;ml-model;'
    'out="media:fmt=ndjson;llm-text-stream"'
)
OPENED = {"threads": 1, "max_context_length": LIMIT, "batch_size": 64}
GREEDY: dict[str, object] = {"temperature": 0, "repeat_penalty": 1, "max_tokens": 100}
AS_IT_IS = {"chat_template": "{{ messages[0].content }}"}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of this plugin alone, whose models stay open for all tests."""
    with registry_of(plugin) as registry:
        yield registry


def start(registry: Registry, path: Path, cap: str = FREE, /, **record: object) -> Call:
    """Start a stream; greedy, unless the record says otherwise."""
    request = {**GREEDY, "prompt": "hello", **record}
    stream: Callable[..., Call] = registry.stream
    return stream(cap, request, model_spec=path, **OPENED)


def opened(registry: Registry, path: Path) -> Cartridge:
    """Open the cartridge, to drive its sessions by hand."""
    open_: Callable[..., Cartridge] = registry.open
    return open_(ID, path, **OPENED)


@attrs.frozen
class Answer:
    """What came: the pieces of the text, and the record of the whole."""

    pieces: list[str]
    record: Mapping[str, object]

    @property
    def text(self) -> str:
        """The pieces, joined."""
        return "".join(self.pieces)

    @property
    def reason(self) -> object:
        """Why it ended."""
        return self.record["finish_reason"]


def ask(registry: Registry, path: Path, cap: str = FREE, /, **record: object) -> Answer:
    """Stream an answer; it has one record, the last of all, which says what the pieces say."""
    results = [e for e in start(registry, path, cap, **record) if isinstance(e, Result)]
    *partials, final = results
    assert [result.kind for result in partials] == [ResultKind.PARTIAL] * len(partials)
    assert final.kind is ResultKind.FINAL
    pieces = [cast("str", result.payload) for result in partials]
    answer = Answer(pieces, cast("Mapping[str, object]", final.payload))
    assert all(pieces)
    assert answer.text == answer.record["generated_text"]
    return answer


def forced(text: str) -> str:
    """Give the grammar that forces a text, each character by its code."""
    codes = "".join(f"\\U{ord(character):08X}" for character in text)
    return f'root ::= "{codes}"'


SPELLED = {
    "a07-llama-han-accent": "a🦙漢字é",
    "a07-family-of-joined-emoji": "👩‍👩‍👧‍👦!",
    "a07-combining-marks": "e\u0301 n\u0303 ก็",
    "a07-right-to-left": "שלום عليكم",
    "a07-edges-of-the-encoding": "\u0080\u07ff\u0800\uffef\U00010000\U0010ffff",
    "a07-the-replacement-character-itself": "a\ufffdb",
}


@pytest.mark.parametrize("text", ["<s>", "</s>", "<unk>", "a<s>b", "<|im_start|>"])
def test_a_grammar_never_takes_a_control_token_for_its_spelling(
    registry: Registry, llama: Path, text: str
) -> None:
    """A control token has no text: what a grammar asks for is written with tokens that have."""
    answer = ask(registry, llama, grammar=forced(text))
    assert (answer.text, answer.reason) == (text, "constraint_satisfied")


@pytest.mark.parametrize("name", ["llama", "byte_pair"])
@pytest.mark.parametrize("text", SPELLED.values(), ids=SPELLED.keys())
def test_a_text_of_byte_tokens_comes_in_whole_characters(
    request: pytest.FixtureRequest, registry: Registry, name: str, text: str
) -> None:
    """A chunk is whole characters, and none stands for bytes that are not there yet."""
    path = request.getfixturevalue(name)
    answer = ask(registry, path, grammar=forced(text))
    assert answer.text == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in answer.pieces)
    assert answer.record["dropped_bytes"] == 0
    assert answer.record["truncated_character"] is False
    unstreamed = start(registry, path, grammar=forced(text)).result()
    assert cast("Mapping[str, object]", unstreamed.payload)["generated_text"] == text


@pytest.mark.parametrize("tokens", [2, 3, 4], ids=["a07-1-of-4", "a07-2-of-4", "a07-3-of-4"])
def test_a_character_that_the_limit_cuts_is_dropped_and_flagged(
    registry: Registry, llama: Path, tokens: int
) -> None:
    """Nothing stands for it; the record says so."""
    answer = ask(registry, llama, grammar=forced("a🦙"), max_tokens=tokens)
    assert answer.pieces == ["a"]
    assert answer.reason == "length"
    assert answer.record["truncated_character"] is True
    assert answer.record["dropped_bytes"] == tokens - 1


STOPPED = {
    "a08-stop-split-over-tokens": ("abcSTOPtail", ["STOP"], "abc"),
    "a08-two-false-starts": ("aSTbSSTOPtail", ["STOP"], "aSTbS"),
    "a08-several-stops-the-earliest-wins": ("one two three", ["three", "two"], "one "),
    "a08-a-stop-inside-a-longer-one": ("x\nUser: y", ["User", "\nUser:"], "x"),
    "a08-stop-in-byte-tokens": ("漢字🦙é!", ["🦙é"], "漢字"),
    "a08-stop-first-of-all": ("STOPtail", ["STOP"], ""),
    "a08-stop-last-of-all": ("abcSTOP", ["STOP"], "abc"),
}


@pytest.mark.parametrize("name", ["llama", "byte_pair"])
@pytest.mark.parametrize(("text", "stops", "kept"), STOPPED.values(), ids=STOPPED.keys())
def test_stop_strings_do_not_leak(
    request: pytest.FixtureRequest,
    registry: Registry,
    name: str,
    text: str,
    stops: list[str],
    kept: str,
) -> None:
    """The text ends before the stop string, and so says the reason."""
    path = request.getfixturevalue(name)
    answer = ask(registry, path, grammar=forced(text), stop_sequences=stops)
    assert answer.text == kept
    assert answer.reason == "stop"


def test_a_false_start_at_the_end_is_released(registry: Registry, llama: Path) -> None:
    """The end decides that it is no stop string."""
    answer = ask(registry, llama, grammar=forced("abcSTO"), stop_sequences=["STOP"])
    assert answer.text == "abcSTO"
    assert answer.reason == "constraint_satisfied"


def test_a_false_start_at_the_limit_is_released(registry: Registry, scripted: Path) -> None:
    """So does the limit."""
    answer = ask(registry, scripted, stop_sequences=["worlds"], max_tokens=2)
    assert answer.text == " hello world"
    assert answer.reason == "length"


def test_a_stop_string_that_the_limit_decides_on(registry: Registry, scripted: Path) -> None:
    """A longer one had begun before it, and does not come."""
    stops = ["world", "lo world, this"]
    answer = ask(registry, scripted, stop_sequences=stops, max_tokens=2)
    assert answer.text == " hello "
    assert answer.reason == "stop"


def test_a_stop_string_in_the_prompt_is_none(registry: Registry, scripted: Path) -> None:
    """Only the answer is looked at."""
    answer = ask(registry, scripted, prompt="STOP", stop_sequences=["STOP"])
    assert answer.text == " hello world, this is a tiny model speaking."
    assert answer.reason == "stop"


def test_a_stop_string_over_two_words(registry: Registry, scripted: Path) -> None:
    """Tokens of several characters are cut inside."""
    answer = ask(registry, scripted, stop_sequences=["lo wor"])
    assert answer.pieces == [" hel"]


@pytest.mark.parametrize("stops", [[""], ["x", ""]], ids=["a08-empty", "a08-empty-among-others"])
def test_error_an_empty_stop_string(registry: Registry, llama: Path, stops: list[str]) -> None:
    """It would stop everything; it is refused before anything is loaded."""
    with pytest.raises(InvalidArgumentError, match="stop_sequences") as caught:
        start(registry, llama, stop_sequences=stops)
    assert caught.value.arg == f"request.stop_sequences[{len(stops) - 1}]"


def words(count: int) -> dict[str, object]:
    """Give a prompt of so many tokens, the first of them the model's own."""
    return {"prompt": "cat" + " cat" * (count - 2), **AS_IT_IS}


def test_prompts_are_as_long_as_the_tests_say(registry: Registry, endless: Path) -> None:
    """The record counts the prompt's tokens."""
    for count in (2, 20, 250, LIMIT):
        answer = ask(registry, endless, **words(count), max_tokens=0)
        assert answer.record["prompt_tokens"] == count


TOO_LONG = {
    "a09-prompt-of-250-and-16-more": (250, 16, "error"),
    "a09-one-more-than-fits": (250, 7, "error"),
    "a09-full-context": (256, 1, "error"),
    "a09-prompt-longer-than-the-context": (300, 16, "error"),
    "a09-prompt-longer-than-the-context-clamped": (257, 16, "clamp"),
    "a09-prompt-longer-than-the-context-for-nothing": (257, 0, "clamp"),
    "a09-prompt-much-longer-than-the-context": (5000, 1, "clamp"),
}


@pytest.mark.parametrize(("prompt", "tokens", "overflow"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_error_more_than_the_context_holds(
    registry: Registry, endless: Path, prompt: int, tokens: int, overflow: str
) -> None:
    """The error has the numbers, and the model works afterwards."""
    with pytest.raises(InvalidArgumentError, match=f"{prompt} tokens") as caught:
        ask(registry, endless, **words(prompt), max_tokens=tokens, overflow=overflow)
    data = vars(caught.value)  # also where the class is not known: across a process border
    assert (data["prompt_tokens"], data["max_tokens"]) == (prompt, tokens)
    assert (data["context_length"], data["allowance"]) == (LIMIT, max(0, LIMIT - prompt))
    assert ask(registry, endless, max_tokens=3).text == " one two three"


FITS = {
    "a09-as-much-as-fits": (250, 6, "error", 6),
    "a09-clamped": (250, 16, "clamp", 6),
    "a09-clamped-to-one": (255, 16, "clamp", 1),
    "a09-clamped-to-nothing": (256, 16, "clamp", 0),
    "a09-a-prompt-alone": (256, 0, "error", 0),
    "a09-no-tokens": (20, 0, "error", 0),
    "a09-the-whole-context": (2, 254, "error", 254),
}


@pytest.mark.parametrize(("prompt", "tokens", "overflow", "made"), FITS.values(), ids=FITS.keys())
def test_never_more_than_there_is_room_for(
    registry: Registry, endless: Path, prompt: int, tokens: int, overflow: str, made: int
) -> None:
    """The number of tokens is what was asked for, or what there is room for; 0 is none."""
    answer = ask(registry, endless, **words(prompt), max_tokens=tokens, overflow=overflow)
    assert answer.record["tokens_generated"] == made
    assert answer.record["prompt_tokens"] == prompt
    assert answer.reason == "length"
    assert answer.text == (" one two three" * 100)[: len(answer.text)]
    assert len(answer.text.split()) == made


def test_the_record_of_the_whole(registry: Registry, scripted: Path) -> None:
    """It has every field of CapDAG's record, and what was left out of the text."""
    answer = ask(registry, scripted, request_id="r-1")
    record = dict(answer.record)
    milliseconds = record.pop("generation_time_ms")
    assert isinstance(milliseconds, int)
    assert milliseconds >= 0
    assert record == {
        "generated_text": " hello world, this is a tiny model speaking.",
        "tokens_generated": 10,
        "prompt_tokens": 11,
        "finish_reason": "stop",
        "dropped_bytes": 0,
        "truncated_character": False,
        "request_id": "r-1",
    }
    assert len(answer.pieces) == 10


def test_the_same_seed_gives_the_same_text(registry: Registry, llama: Path) -> None:
    """Another one gives another."""
    hot = {"temperature": 1.5, "max_tokens": 20}
    texts = [ask(registry, llama, **hot, seed=seed).text for seed in (1, 2, 1)]
    assert texts[0] == texts[2]
    assert texts[0] != texts[1]


def test_progress_counts_the_tokens(registry: Registry, endless: Path) -> None:
    """A long answer shows how much of the limit it has."""
    events = list(start(registry, endless, max_tokens=100))
    told = [e for e in events if isinstance(e, Progress) and e.phase is Phase.INFER]
    fractions = [event.fraction for event in told]
    assert fractions == sorted(fractions)
    assert len(set(fractions)) >= 10


def test_a_session_left_early_leaves_the_model_usable(registry: Registry, endless: Path) -> None:
    """Whoever has read enough stops reading."""
    for _ in range(3):
        with start(registry, endless, max_tokens=200) as call:
            texts = (event.payload for event in call if isinstance(event, Result))
            assert [next(texts), next(texts)] == [" one", " two"]
    assert ask(registry, endless, max_tokens=3).text == " one two three"


def test_cancelling_stops_the_text(registry: Registry, endless: Path) -> None:
    """From another thread, in the middle of the text; the model is usable at once."""
    call = start(registry, endless, max_tokens=240)
    first = next(event for event in call if isinstance(event, Result))
    assert first.kind is ResultKind.PARTIAL
    canceller = threading.Thread(target=call.cancel)
    canceller.start()
    canceller.join()
    with pytest.raises(CancelledError):
        list(call)
    assert ask(registry, endless, max_tokens=3).text == " one two three"


def test_streams_by_turns_give_what_each_gives_alone(registry: Registry, llama: Path) -> None:
    """Four callers of one model do not disturb each other."""
    records = [{"prompt": f"hello {name}", "max_tokens": 12} for name in ("cat", "dog", "a", "the")]
    alone = [ask(registry, llama, **record).text for record in records]
    texts = [""] * len(records)
    with opened(registry, llama) as cartridge:
        sessions = [cartridge.session(FREE_URN) for _ in records]
        for session, record in zip(sessions, records, strict=True):
            session.push({**GREEDY, **record})
            assert session.pull() is None
            session.flush()
        places = list(range(len(sessions)))
        while places:
            for place in list(places):
                result = sessions[place].pull()
                if result is None:
                    places.remove(place)
                elif result.kind is ResultKind.PARTIAL:
                    texts[place] += cast("str", result.payload)
        for session in sessions:
            session.end()
    assert texts == alone


def test_error_a_second_request(registry: Registry, scripted: Path) -> None:
    """A session answers one request; another is refused, and the first is answered."""
    with opened(registry, scripted) as cartridge, cartridge.session(FREE_URN) as session:
        session.push({**GREEDY, "prompt": "hello"})
        with pytest.raises(StateError, match="another session"):
            session.push({**GREEDY, "prompt": "world"})
        session.flush()
        *_, final = session.drain()
        assert final.kind is ResultKind.FINAL


def test_a_session_without_a_request_gives_nothing(registry: Registry, scripted: Path) -> None:
    """There is nothing to answer."""
    with opened(registry, scripted) as cartridge, cartridge.session(FREE_URN) as session:
        session.flush()
        assert list(session.drain()) == []


def test_both_requests_reach_their_cap(registry: Registry) -> None:
    """A request without backend or media finds the cap that it means."""
    assert "constrained" not in registry.route(FREE).cap.urn.tags
    assert "constrained" in registry.route(CONSTRAINED).cap.urn.tags
    assert registry.route(FREE).cartridge_id == registry.route(CONSTRAINED).cartridge_id == ID


WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"town": {"enum": ["Oslo", "Rome"]}},
        "required": ["town"],
    },
}
KEPT = {
    "grammar": ({"grammar": 'root ::= "yes" | "no"'}, {}),
    "regex": ({"constraint": {"type": "regex", "pattern": "[ab]{3}"}}, {}),
    "json-schema": ({"json_schema": {"const": {"ok": True}}}, {"value": {"ok": True}}),
    "json-schema-as-a-constraint": (
        {"constraint": {"type": "json_schema", "schema": {"const": [1, "é"]}}},
        {"value": [1, "é"]},
    ),
    "json-null": ({"json_schema": {"type": "null"}}, {"value": None}),
    "tool-call": (
        {"constraint": {"type": "tool_call", "tools": [WEATHER]}},
        {"tool_name": "weather"},
    ),
}


@pytest.mark.parametrize("name", ["llama", "byte_pair"])
@pytest.mark.parametrize(("field", "parsed"), KEPT.values(), ids=KEPT.keys())
@pytest.mark.parametrize("cap", [FREE, CONSTRAINED], ids=["free", "constrained"])
def test_a_constraint_is_kept_and_read(
    request: pytest.FixtureRequest,
    registry: Registry,
    name: str,
    field: dict[str, object],
    parsed: dict[str, object],
    cap: str,
) -> None:
    """A text that keeps it to the end says so, and comes parsed where there is something to."""
    answer = ask(registry, request.getfixturevalue(name), cap, **field)
    assert answer.reason == "constraint_satisfied"
    extra = {"value", "tool_name", "tool_args"} & answer.record.keys()
    assert parsed.items() <= answer.record.items()
    assert extra == parsed.keys() | ({"tool_args"} if "tool_name" in parsed else set())
    if "tool_args" in extra:
        assert answer.record["tool_args"] in ({"town": "Oslo"}, {"town": "Rome"})
        written = json.loads(answer.text)
        assert written == {"name": "weather", "arguments": answer.record["tool_args"]}


@pytest.mark.parametrize(
    "field",
    [{"max_tokens": 3}, {"stop_sequences": ["o"]}],
    ids=["by-the-limit", "by-a-stop-string"],
)
def test_a_constrained_text_that_is_cut_is_not_read(
    registry: Registry, llama: Path, field: dict[str, object]
) -> None:
    """It has no value, and its end is that of the cut."""
    answer = ask(registry, llama, CONSTRAINED, json_schema={"const": {"ok": True}}, **field)
    assert answer.reason == ("length" if "max_tokens" in field else "stop")
    assert "value" not in answer.record


def test_error_the_constrained_cap_needs_a_constraint(registry: Registry, llama: Path) -> None:
    """It never writes freely."""
    with pytest.raises(InvalidArgumentError, match="none is given"):
        ask(registry, llama, CONSTRAINED)
