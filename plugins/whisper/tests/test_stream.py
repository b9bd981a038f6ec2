"""When a stream is listened to and what it says, on recognisers that stand for a model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import numpy as np  # noqa: TID253 -- arrays are what is heard
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import CancelledError
from cartridge_core.results import ResultKind
from cartridge_whisper.recogniser import Hypothesis
from cartridge_whisper.segments import Word
from cartridge_whisper.stream import News, Stream
from cartridge_whisper.utterance import Utterance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Sound = NDArray[np.float32]

RATE = 16_000
WORD = RATE // 4
PARTIAL, FINAL, ENDPOINT = ResultKind.PARTIAL, ResultKind.FINAL, ResultKind.ENDPOINT


def nothing() -> None:
    """Ask nobody."""


def speech(seconds: float, first: int = 0) -> Sound:
    """Make a sound that says numbers, four a second: its level is the number's."""
    numbers = np.arange(round(seconds * RATE)) // WORD + first + 1
    return (numbers / 10_000).astype(np.float32)


def silence(seconds: float) -> Sound:
    """Make a sound that says nothing."""
    return np.zeros(round(seconds * RATE), np.float32)


def level(samples: Sound) -> float:
    """Take every sound for speech that is not silent."""
    return 0.9 if np.count_nonzero(samples) > len(samples) / 2 else 0.1


@attrs.define
class Listener:
    """Reads the numbers off the levels, and remembers what it was asked."""

    passes: list[tuple[int, list[int], str | None, bool]] = attrs.field(factory=list)
    drafts: list[list[int]] = attrs.field(factory=list)

    def recognise(
        self,
        samples: Sound,
        prompt: Sequence[int],
        ask: Callable[[], None],
        *,
        draft: Sequence[int],
        language: str | None,
        is_last: bool,
    ) -> Hypothesis:
        """Give a word for each number of which half can be heard."""
        ask()
        self.passes.append((len(samples), list(prompt), language, is_last))
        self.drafts.append(list(draft))
        words = self.words(samples)
        return Hypothesis(
            words=words, language="en", draft=[word.tokens[0] for word in words if word.tokens]
        )

    def words(self, samples: Sound) -> list[Word]:
        """Find the words."""
        numbers = np.rint(samples * 10_000).astype(int)
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        return [
            Word(f" {numbers[start] - 1}", [int(numbers[start])], start / RATE, end / RATE, 1.0)
            for start, end in itertools.pairwise(edges)
            if end - start > WORD / 2 and numbers[start]
        ]


class Counter(Listener):
    """Says how many samples it was given, and nothing else."""

    def words(self, samples: Sound) -> list[Word]:
        """Give one word."""
        return [Word(str(len(samples)), [], 0.0, len(samples) / RATE, 1.0)]


class Deaf(Listener):
    """Understands nothing."""

    def words(self, samples: Sound) -> list[Word]:
        """Give none."""
        return []


def stream_of(
    recogniser: Listener,
    *,
    pause_s: float = 0.3,
    step_s: float = 1.0,
    prompt: Sequence[int] = (),
    conditions: bool = True,
    clock: Callable[[], float] = lambda: 0.0,
) -> Stream:
    """Begin a stream."""
    return Stream(
        level,
        recogniser,
        pause_s=pause_s,
        step_s=step_s,
        prompt=prompt,
        conditions=conditions,
        clock=clock,
    )


def hear(stream: Stream, chunks: Iterable[Sound], ask: Callable[[], None] = nothing) -> list[News]:
    """Push chunks and pull after each, then end it."""
    found: list[News] = []
    for chunk in chunks:
        stream.add(chunk)
        while news := stream.next(ask):
            found.append(news)
    stream.end()
    while news := stream.next(ask):
        found.append(news)
    return found


def pieces(sound: Sound, sizes: Iterable[int]) -> list[Sound]:
    """Cut a sound into pieces of these sizes, by turns."""
    found, at, turns = [], 0, itertools.cycle(sizes)
    while at < len(sound):
        size = next(turns)
        found.append(sound[at : at + size])
        at += size
    return found


def text(news: News) -> str:
    """Make a text of words."""
    return "".join(word.text for word in news.words)


def finals(found: Sequence[News]) -> list[str]:
    """Give the texts of the FINALs."""
    return [text(news) for news in found if news.kind is FINAL]


def check(found: Sequence[News], samples: int) -> None:
    """Hold news against what always holds."""
    segment, end, last, stands = 0, 0, None, ""
    for news in found:
        assert (news.segment, news.start) == (segment, end), news
        committed = "".join(word.text for word in news.committed)
        if news.kind is ENDPOINT:
            assert last is not ENDPOINT
        else:
            assert text(news).startswith(committed)
            assert committed.startswith(stands), "what stood was changed"
            stands = committed
        if news.kind is PARTIAL:
            assert last is not ENDPOINT, "a PARTIAL between an ENDPOINT and its FINAL"
        if news.kind is FINAL:
            assert (last is ENDPOINT) == bool(news.words), "an ENDPOINT is for speech"
            assert committed == text(news)
            assert end < news.end <= samples
            segment, end, stands = segment + 1, news.end, ""
        times = [time for word in news.words for time in (word.start_s, word.end_s)]
        assert times == sorted(times)
        last = news.kind
    assert last is FINAL
    assert end == samples


@pytest.mark.parametrize(
    ("parts", "utterances"),
    [
        pytest.param([speech(1.0), silence(0.4), speech(0.8)], 2, id="a13"),
        pytest.param([speech(1.0), silence(0.2), speech(0.8)], 1, id="a13-neighbour-short-pause"),
        pytest.param([speech(0.5)], 1, id="a13-neighbour-one"),
        pytest.param([speech(1.0), silence(0.25)], 1, id="a13-neighbour-flush-in-a-pause"),
        pytest.param([silence(0.3), speech(3.3)], 1, id="a13-neighbour-silence-first"),
        pytest.param([speech(3.3), silence(0.3)], 1, id="a13-neighbour-silence-last"),
        pytest.param([speech(0.7), silence(0.35)] * 7, 7, id="a13-neighbour-seven"),
        pytest.param([speech(0.4), speech(0.1), silence(0.9)], 1, id="a13-neighbour-long-pause"),
        pytest.param([speech(1.0), silence(0.4), speech(0.01)], 1, id="a13-neighbour-click-last"),
    ],
)
@pytest.mark.parametrize("size", [1600, 512, 10**9, 333])
def test_every_sample_is_in_one_final(parts: list[Sound], utterances: int, size: int) -> None:
    """The model is given every sample for one FINAL, as long as silences are short."""
    sound = np.concatenate(parts)
    found = hear(stream_of(Counter()), pieces(sound, [size]))
    check(found, len(sound))
    spoken = [news for news in found if news.kind is FINAL and news.words]
    assert len(spoken) == utterances
    rest = sum(news.end - news.start for news in found if news.kind is FINAL and not news.words)
    given = sum(int(text(news)) for news in spoken)
    # Of a pause at the end, what comes after the last pass is silent.
    silent = int(np.flatnonzero(sound[::-1])[0])
    assert 0 <= len(sound) - rest - given <= silent


def test_the_last_words_before_a_pause_are_in_its_final() -> None:
    """Nothing that is said is lost, or said twice."""
    sound = np.concatenate([speech(2.6), silence(0.5), speech(1.3, 100), silence(0.1)])
    found = hear(stream_of(Listener()), pieces(sound, [1600]))
    assert finals(found) == [" 0 1 2 3 4 5 6 7 8 9", " 100 101 102 103 104"]
    ends = [news.end / RATE for news in found if news.kind is ENDPOINT]
    assert ends == pytest.approx([2.6, 4.4], abs=0.032)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=5),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
)
def test_chunks_make_no_difference(turns: list[tuple[int, int]], sizes: list[int]) -> None:
    """A stream that comes in any chunks says what one says that comes whole, PARTIALs too."""
    parts = [
        part
        for number, (spoken, quiet) in enumerate(turns)
        for part in (speech(spoken / 10, number * 50), silence(quiet / 10))
    ]
    sound = np.concatenate(parts)
    whole = hear(stream_of(Listener()), [sound])
    check(whole, len(sound))
    assert hear(stream_of(Listener()), pieces(sound, sizes)) == whole


def test_pull_gives_none_at_once_where_nothing_is_due() -> None:
    """Nor is the model asked."""
    listener = Listener()
    stream = stream_of(listener)
    assert stream.next(nothing) is None
    stream.add(speech(0.9))
    assert stream.next(nothing) is None
    assert listener.passes == []


def test_after_the_end_there_is_nothing() -> None:
    """A stream without sound says nothing, and a stream that is over stays so."""
    stream = stream_of(Listener())
    stream.end()
    assert [stream.next(nothing), stream.next(nothing)] == [None, None]


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(silence(10.0), id="silence"),
        pytest.param(silence(0.01), id="a-moment"),
        pytest.param(np.concatenate([silence(2.0), speech(0.1), silence(2.0)]), id="a-click"),
    ],
)
def test_where_nobody_speaks_one_final_says_so(sound: Sound) -> None:
    """There is no ENDPOINT for speech that never began, and the model is not asked."""
    listener = Listener()
    (final,) = hear(stream_of(listener), pieces(sound, [1600]))
    assert (final.kind, final.words, final.heard) == (FINAL, (), None)
    assert (final.start, final.end) == (0, len(sound))
    assert listener.passes == []


def test_sound_without_words_is_no_utterance() -> None:
    """What the detector takes for speech and the model does not has no ENDPOINT."""
    sound = np.concatenate([speech(2.0), silence(1.0), speech(2.0)])
    (final,) = hear(stream_of(Deaf()), pieces(sound, [1600]))
    assert (final.kind, text(final)) == (FINAL, "")


def test_hours_of_silence_take_no_memory() -> None:
    """Half a second of it is kept, and heard with what is said at last."""
    listener = Listener()
    stream = stream_of(listener)
    minute = silence(60.0)
    for _ in range(30):
        stream.add(minute)
        assert stream.next(nothing) is None
    found = hear(stream, [speech(1.0)])
    assert finals(found) == [" 0 1 2 3"]
    assert found[-1].end == 1801 * RATE
    assert [length for length, *_ in listener.passes] == [pytest.approx(1.5 * RATE, abs=512)]


def test_a_long_utterance_is_one_final() -> None:
    """Of two minutes without a pause no word is lost, and the model never gets more than 30 s."""
    listener = Listener()
    sound = speech(120.0)
    found = hear(stream_of(listener), pieces(sound, [1600]))
    check(found, len(sound))
    assert finals(found) == ["".join(f" {number}" for number in range(480))]
    assert max(length for length, *_ in listener.passes) < 30 * RATE
    assert sum(news.kind is ENDPOINT for news in found) == 1
    prompt = listener.passes[-1][1]
    assert prompt == list(range(prompt[-1] - 63, prompt[-1] + 1)), "what was let go of is shown"


def test_a_sound_is_let_go_of_in_its_longest_pause() -> None:
    """After a word that stands, where the sound kept is long enough."""
    starts = [0.5 * n + (0.4 if n > 13 else 0.0) for n in range(36)]
    times = [(start, start + 0.45) for start in starts]
    found = Hypothesis(
        words=[Word(f" {n}", [n], *time, 1.0) for n, time in enumerate(times)], language="en"
    )
    utterance = Utterance(0)
    for _ in range(2):
        utterance.hear(found, 0, 20 * RATE)
    assert utterance.let_go(0, 19 * RATE) == 0
    assert utterance.let_go(0, 20 * RATE) / RATE == pytest.approx((6.95 + 7.4) / 2, abs=0.01)
    assert len(utterance.settled) == 14
    assert len(utterance.words) == 36


def test_words_after_a_short_pause_are_not_lost_where_the_model_is_slow() -> None:
    """A pass over what came before the pause is not the last one."""
    times = itertools.count(step=0.8)
    sound = np.concatenate([speech(2.0), silence(0.25), speech(0.5, 50), silence(1.0)])
    found = hear(
        stream_of(Listener(), pause_s=0.5, clock=lambda: next(times)), pieces(sound, [1600])
    )
    assert finals(found)[0].split()[-2:] == ["50", "51"]


class Tired(Listener):
    """Hears what is said at first, and no more."""

    def words(self, samples: Sound) -> list[Word]:
        """Give the first numbers."""
        return [word for word in super().words(samples) if int(word.text) < 8]


class Fickle(Listener):
    """Says the same in other words every time."""

    def words(self, samples: Sound) -> list[Word]:
        """Give the numbers with a mark of this pass."""
        mark = f"x{len(self.passes)}"
        return [attrs.evolve(word, text=word.text + mark) for word in super().words(samples)]


@pytest.mark.parametrize("kind", [Tired, Fickle, Deaf])
@pytest.mark.parametrize("spoken_s", [29.0, 120.0])
def test_a_model_that_does_not_agree_with_itself_is_not_asked_for_ever(
    kind: type[Listener], spoken_s: float
) -> None:
    """It never gets more than 30 s, and no more passes than others."""
    listener = kind()
    sound = speech(spoken_s)
    found = hear(stream_of(listener), pieces(sound, [1600]))
    check(found, len(sound))
    assert max(length for length, *_ in listener.passes) < 30 * RATE
    assert len(listener.passes) <= spoken_s + 2
    numbers = [int(word.partition("x")[0]) for word in finals(found)[0].split()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= {Tired: 8, Fickle: spoken_s * 3.9, Deaf: 0}[kind]


def test_words_that_stand_are_in_later_partials() -> None:
    """Two passes that agree have their words stand."""
    found = hear(stream_of(Listener()), pieces(speech(3.5), [1600]))
    committed = [len(news.committed) for news in found if news.kind is PARTIAL]
    assert committed[0] == 0
    assert committed == sorted(committed)
    assert committed[-1] >= 4


def test_a_poor_pass_is_not_shown() -> None:
    """Nor does it count; the last pass always does."""

    class Poor(Listener):
        def recognise(
            self,
            samples: Sound,
            prompt: Sequence[int],
            ask: Callable[[], None],
            *,
            draft: Sequence[int],
            language: str | None,
            is_last: bool,
        ) -> Hypothesis:
            del prompt, ask, draft, language, is_last
            return Hypothesis(words=self.words(samples), language="en", is_poor=True)

    found = hear(stream_of(Poor()), pieces(speech(3.0), [1600]))
    assert [news.kind for news in found] == [ENDPOINT, FINAL]


@pytest.mark.parametrize("sound", [speech(25.0), np.concatenate([speech(22.0), silence(1.0)] * 2)])
def test_a_pass_waits_until_it_is_worth_what_the_last_one_took(sound: Sound) -> None:
    """A slow model makes fewer passes, and misses nothing."""
    times = itertools.count(step=2.5)
    listener = Listener()
    found = hear(stream_of(listener, clock=lambda: next(times)), pieces(sound, [1600]))
    check(found, len(sound))
    assert len(listener.passes) <= len(sound) / RATE / 2.5 + 2
    fast = Listener()
    quick = hear(stream_of(fast), pieces(sound, [1600]))
    assert finals(quick) == finals(found)
    assert len(fast.passes) > 1.5 * len(listener.passes)


def test_a_pause_that_ends_an_utterance_needs_no_second_pass() -> None:
    """The pass that is made when the speech stops is the one of the FINAL."""
    listener = Listener()
    sound = np.concatenate([speech(1.5), silence(1.0)])
    hear(stream_of(listener, pause_s=0.6), pieces(sound, [1600]))
    assert [is_last for *_, is_last in listener.passes] == [False, True]
    assert listener.passes[-1][0] == pytest.approx((1.5 + 0.13) * RATE, abs=1024)


@pytest.mark.parametrize(("steps", "passes"), [(1, 2), (2, 2), (3, 3), (8, 3)])
def test_a_click_in_the_last_pause_needs_no_second_pass(steps: int, passes: int) -> None:
    """What is shorter than any word; every sample is in one FINAL all the same."""
    listener = Listener()
    click = speech(steps * 0.032, 100)
    sound = np.concatenate([speech(1.504), silence(0.256), click, silence(1.0)])
    found = hear(stream_of(listener, pause_s=0.5), pieces(sound, [512]))
    check(found, len(sound))
    assert len(listener.passes) == passes
    assert finals(found)[0].startswith(" 0 1 2 3 4 5")
    ends = [news.end / RATE for news in found if news.kind is ENDPOINT]
    assert len(ends) == 1


@pytest.mark.parametrize(
    ("quiet_s", "click_s", "passes"),
    [
        pytest.param(0.3, 0.0, 2, id="silence-alone"),
        pytest.param(0.288, 0.02, 3, id="something-at-the-end"),
        pytest.param(0.05, 0.0, 2, id="no-pass-in-the-pause"),
    ],
)
def test_a_flush_in_a_pause_needs_no_second_pass(
    quiet_s: float, click_s: float, passes: int
) -> None:
    """The one that was made when the speech stopped is the last, if nothing was said since."""
    listener = Listener()
    sound = np.concatenate([speech(1.504), silence(quiet_s), np.full(round(click_s * RATE), 0.01)])
    found = hear(stream_of(listener, pause_s=0.5), pieces(sound.astype(np.float32), [512]))
    check(found, len(sound))
    assert [is_last for *_, is_last in listener.passes] == [False] + [True] * (passes - 1)
    assert finals(found)[0].startswith(" 0 1 2 3 4 5")


def test_the_text_before_is_shown() -> None:
    """The prompt comes first, then what was said; where nothing is to be shown, nothing is."""
    sound = np.concatenate([speech(1.0), silence(0.5), speech(1.0, 50), silence(0.5)])
    listener = Listener()
    hear(stream_of(listener, prompt=[7, 8]), [sound])
    prompts = [prompt for _, prompt, *_ in listener.passes]
    assert prompts[0] == [7, 8]
    assert prompts[-1] == [7, 8, 1, 2, 3, 4]
    hear(stream_of(listener, conditions=False), [sound])
    assert listener.passes[-1][1] == []


def test_a_pass_begins_with_what_the_one_before_found() -> None:
    """As long as its sound begins at the same place."""
    listener = Listener()
    sound = np.concatenate([speech(2.6), silence(0.5), speech(25.0, 100)])
    hear(stream_of(listener), pieces(sound, [1600]))
    lengths = [length for length, *_ in listener.passes]
    for before, (draft, length) in itertools.pairwise(zip(listener.drafts, lengths, strict=True)):
        assert bool(draft) == (length > before[1])
    assert any(listener.drafts)


@pytest.mark.parametrize("flaw", ["is_poor", "is_guess"])
def test_doubtful_text_is_not_shown_to_the_next_utterance(flaw: str) -> None:
    """Nor what came before it."""

    class Doubtful(Listener):
        def recognise(
            self,
            samples: Sound,
            prompt: Sequence[int],
            ask: Callable[[], None],
            *,
            draft: Sequence[int],
            language: str | None,
            is_last: bool,
        ) -> Hypothesis:
            found = super().recognise(
                samples, prompt, ask, draft=draft, language=language, is_last=is_last
            )
            is_second = len(self.passes) == 2
            return attrs.evolve(
                found,
                is_poor=is_second and flaw == "is_poor",
                is_guess=is_second and flaw == "is_guess",
            )

    listener = Doubtful()
    turns = [np.concatenate([speech(0.5, 50 * n), silence(0.5)]) for n in range(3)]
    hear(stream_of(listener), turns)
    assert [prompt for _, prompt, *_ in listener.passes] == [[], [1, 2], []]


def test_the_language_is_kept_once_it_is_certain() -> None:
    """Of three seconds of an utterance it is; the next utterance begins anew."""
    listener = Listener()
    hear(stream_of(listener), [np.concatenate([speech(5.0), silence(0.5), speech(1.5)])])
    languages = [language for _, _, language, _ in listener.passes]
    assert languages[:3] == [None] * 3
    assert languages[4] == "en"
    assert languages[-1] is None


def test_work_is_left_at_once() -> None:
    """What asking raises comes out of a pass."""
    asked = itertools.count()

    def stop() -> None:
        if next(asked) > 40:
            msg = "stopped"
            raise CancelledError(msg)

    stream = stream_of(Listener())
    stream.add(speech(5.0))
    with pytest.raises(CancelledError):
        hear(stream, [], stop)


@pytest.mark.parametrize(("took_s", "latest_s"), [(0.1, 0.65), (0.3, 0.75), (0.45, 1.0)])
@pytest.mark.parametrize("spoken_s", [1.0, 1.5, 1.9, 2.1, 2.15, 3.0, 5.2])
def test_a_final_comes_soon_after_its_endpoint(
    took_s: float, latest_s: float, spoken_s: float
) -> None:
    """Where sound comes as it is spoken: once the pause is long enough, or after two passes."""
    wall_s = itertools.count()
    now_s = free_s = passes = 0.0

    class Slow(Listener):
        def words(self, samples: Sound) -> list[Word]:
            nonlocal passes
            passes += 1
            return super().words(samples)

    sound = np.concatenate([speech(spoken_s), silence(1.0)] * 4)
    stream = stream_of(Slow(), pause_s=0.5, clock=lambda: next(wall_s) * took_s)
    delays: list[float] = []
    spoken_until_s = 0.0
    for chunk in pieces(sound, [1600]):
        stream.add(chunk)
        now_s += len(chunk) / RATE
        while news := stream.next(nothing):
            if passes:
                free_s, passes = max(now_s, free_s) + passes * took_s, 0
            if news.kind is ENDPOINT:
                spoken_until_s = news.end / RATE
            elif news.kind is FINAL:
                delays.append(max(now_s, free_s) - spoken_until_s)
    assert len(delays) == 4
    assert max(delays) <= latest_s
