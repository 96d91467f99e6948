"""Text from strangers: cleaned, defused and cut into sentences, whatever it holds."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime import text as texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. How are you? Fine!", ["Hello there.", "How are you?", "Fine!"]),
        ("Dr. Smith met J. K. Rowling. They spoke.", ["Dr. Smith met J. K. Rowling.", "They spoke."]),
        ("It costs $3.50 today. Good.", ["It costs $3.50 today.", "Good."]),
        ('"Really?" he said. "Yes."', ['"Really?" he said.', '"Yes."']),
        ("Wait... what is that?", ["Wait... what is that?"]),
        ("One line\nand another", ["One line", "and another"]),
        ("A title\n\nA paragraph. More.", ["A title", "A paragraph.", "More."]),
        ("你好。世界！再见", ["你好。", "世界！", "再见"]),
        ("No. 5 is alive. Indeed.", ["No. 5 is alive.", "Indeed."]),
        ("Well :-) fine 😀. Bye.", ["Well :-) fine 😀.", "Bye."]),
        ("First. ... !!! Second.", ["First.", "Second."]),
    ],
)
def test_sentences_end_where_a_reader_would_pause(text: str, expected: list[str]) -> None:
    assert texts.units(texts.clean(text)) == expected


@pytest.mark.parametrize("text", ["", "   \n ", "?!.,;:", "😀🎉", "\x00", "...\n...", "\u200b\u202e"])
def test_a_text_without_words_has_no_units(text: str) -> None:
    assert texts.units(texts.clean(text)) == []


def test_a_long_first_sentence_gives_up_its_first_clause_so_that_sound_leaves_early() -> None:
    sentence = (
        "On the third of March of the year that nobody wanted to remember, twelve hundred and fifty people paid for it, "
        "and each of them was glad to hear it read aloud."
    )

    head, *rest = texts.units(sentence)

    assert head.endswith("remember,")
    assert " ".join([head, *rest]) == sentence


def test_a_clause_does_not_end_inside_a_number() -> None:
    text = "The total of all the invoices of that long year was exactly 1,250,000 dollars and 7:30 hours " * 3

    for unit in texts.units(text.strip(), max_chars=100):
        assert not re.search(r"\d[,:]$", unit)


def test_brackets_are_turned_round_so_that_no_markup_is_left() -> None:
    assert texts.defuse("[a](/b/) and [[c](/d/)") == "(a)(/b/) and ((c)(/d/)"


def test_control_characters_are_no_part_of_a_clean_text() -> None:
    assert texts.clean("Hi\x00there\x1b[31m \u202ebold\u200b  end\r\nnext\tword") == "Hi there [31m bold end\nnext word"


@given(st.text(max_size=600))
def test_clean_text_holds_nothing_invisible_and_cleaning_twice_changes_nothing(text: str) -> None:
    cleaned = texts.clean(text)

    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn"} or char == "\n" for char in cleaned)
    assert texts.clean(cleaned) == cleaned


@given(st.text(max_size=1500), st.integers(20, 300))
def test_units_are_short_enough_and_lose_no_word_whatever_the_text(text: str, limit: int) -> None:
    cleaned = texts.clean(text)

    units = texts.units(cleaned, limit)

    assert all(0 < len(unit) <= limit and texts.has_words(unit) for unit in units)
    spoken = "".join(char for char in cleaned if char.isalnum())
    assert "".join(char for unit in units for char in unit if char.isalnum()) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "." * 50_000,
        ". " * 25_000,
        "a" * 50_000,
        "[](" * 16_000,
        "\n" * 50_000,
        "Mr. " * 12_500,
        ", " * 25_000,
    ],
)
def test_hostile_texts_take_a_time_that_grows_with_their_length_only(text: str) -> None:
    begun = time.perf_counter()

    texts.defuse("".join(texts.units(texts.clean(text))))

    assert time.perf_counter() - begun < 1.5
