"""Text from strangers made fit for a voice: cleaned, defused, and cut into sentences that can be spoken one by one.

The sentence is the unit of work (see `dispatch`), so the cut decides how early the first sound leaves and how fairly
requests share the workers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Longest unit in characters. About 12 s of English: long enough for a natural melody, short enough that no unit holds a
# worker for long, and far below what makes attention's square growth hurt (a 5,000-character sentence took over 1 GiB).
MAX_UNIT_CHARS = 240
# A first sentence longer than this gives up its first clause, so that sound leaves before the whole sentence is done.
EAGER_FIRST_CHARS = 110
_EAGER_MIN_CHARS = 30

_TITLES = frozenset(
    {
        "Mr",
        "Mrs",
        "Ms",
        "Dr",
        "Prof",
        "Sr",
        "Jr",
        "St",
        "Mt",
        "Rev",
        "Hon",
        "Gen",
        "Col",
        "Capt",
        "Lt",
        "Sgt",
        "Cmdr",
        "Gov",
    }
    | {"Sen", "Rep", "Pres", "vs", "etc", "No", "Nos", "Fig", "Vol", "Inc", "Ltd", "Co", "Corp", "approx"}
)
# A run of full stops is looked at once, from its start, and never again: 50,000 of them took a minute otherwise.
_SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’)\]]*+\s+|[。！？；]+["'”’」』）)]*\s*|\n+""")
# "1,250" and "7:30" hold these signs too: ASCII ones end a clause only before white space.
_CLAUSE_END = re.compile(r"[,;:]\s+|[—，、：]\s*")
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\s*\n\s*")
# Control (Cc), format (Cf: bidi overrides, zero-width), surrogates (Cs), private use (Co) and unassigned (Cn) code points
# are nothing that can be said; some of them hide text or upset tokenisers.
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_LONG_NUMBER = re.compile(r"\d(?:,?\d){15,}")
_LONGEST_WORD = 40
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
_SEPARATOR = re.compile(r"[^\w\s]|_")
_BRACKETS = str.maketrans({"[": "(", "]": ")"})


def clean(text: str) -> str:
    """The text without control and format characters, white space collapsed; line breaks stay, as they end sentences."""
    if not text.isascii() or not text.isprintable():
        text = "".join(_kept(char) for char in unicodedata.normalize("NFC", text))
    return _BLANK_LINES.sub("\n", _SPACES.sub(" ", text)).strip()


def _kept(char: str) -> str:
    if char in "\n\r\u2028\u2029\x0b\x0c\x85":
        return "\n"
    if char == "\t":
        return " "
    return " " if unicodedata.category(char) in _DROPPED_CATEGORIES else char


def defuse(text: str) -> str:
    """The text without what upsets the embedded voice; each rule stands for something that a fuzzer or a user found.

    - Square brackets are turned round: it reads `[text](/phonemes/)` as markup, with a pattern whose time grows with the
      square of the number of brackets (4,000 of them kept a worker busy for 8 s).
    - Numbers of more than 15 digits are spelled: it fails on those of more than 36, and nobody can follow them anyway.
    - Words of more than 40 characters are parted: its time grows with the cube of their parts ("a-a-a-..." took 3 s for 240
      characters).
    - Digits that are no decimals, such as a raised 1, become plain ones: it takes them for a number and cannot convert them.
    """
    text = text.translate(_BRACKETS)
    if not text.isascii():
        text = "".join(_plain_digit(char) for char in text)
    return _LONG_WORD.sub(_parted, _LONG_NUMBER.sub(_spelled, text))


def _plain_digit(char: str) -> str:
    # Raised 2 and 3 are read as "squared" and "cubed".
    if char.isdigit() and not char.isdecimal() and char not in "²³":
        return f" {unicodedata.digit(char)} "
    return char


def _spelled(number: re.Match[str]) -> str:
    return " " + " ".join(number.group().replace(",", "")) + " "


def _parted(word: re.Match[str]) -> str:
    rest, parts = word.group(), []
    while len(rest) > _LONGEST_WORD:
        cuts = [match.end() for match in _SEPARATOR.finditer(rest, 1, _LONGEST_WORD)]
        cut = cuts[-1] if cuts else _LONGEST_WORD
        parts.append(rest[:cut])
        rest = rest[cut:]
    return " ".join([*parts, rest])


def has_words(text: str) -> bool:
    """Whether there is any letter, digit or symbol that some voice may say; punctuation and emoji alone are not."""
    return any(char.isalnum() or char in "%&@+=$€£#" for char in text)


def units(text: str, max_chars: int = MAX_UNIT_CHARS) -> list[str]:
    """The cleaned text cut at sentence ends, then where needed at clauses and spaces; no unit is longer than `max_chars`.

    Units without a letter, digit or spoken symbol are left out. The first one is short where that costs nothing.
    """
    sentences = [part for sentence in _sentences(text) for part in _fit(sentence, max_chars) if has_words(part)]
    if sentences:
        sentences[:1] = _eager(sentences[0])
    return sentences


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(text, match):
            if sentence := text[start : match.end()].strip():
                yield sentence
            start = match.end()
    if rest := text[start:].strip():
        yield rest


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """False after a title or an initial ("Dr. Smith", "J. K. Rowling") and before a lower-case word ("What?" he said)."""
    if "\n" in match.group():
        return True
    if text[match.end() : match.end() + 1].islower():
        return False
    if not match.group().startswith("."):
        return True
    # Looking back a bounded way keeps a text of nothing but full stops linear.
    word = text[max(0, match.start() - 16) : match.start()].rpartition(" ")[2].lstrip("(\"“'‘")
    return not (word in _TITLES or (len(word) == 1 and word.isupper()))


def _fit(sentence: str, max_chars: int) -> Iterator[str]:
    while len(sentence) > max_chars:
        cut = _last_cut(sentence, max_chars)
        if part := sentence[:cut].strip():
            yield part
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence


def _last_cut(sentence: str, max_chars: int) -> int:
    """Where to cut: after the last clause in the second half of what fits, else after the last space, else hard."""
    window = sentence[:max_chars]
    clauses = [match.end() for match in _CLAUSE_END.finditer(window, max_chars // 2)]
    return clauses[-1] if clauses else (window.rfind(" ") + 1 or max_chars)


def _eager(sentence: str) -> list[str]:
    if len(sentence) <= EAGER_FIRST_CHARS:
        return [sentence]
    for match in _CLAUSE_END.finditer(sentence, _EAGER_MIN_CHARS):
        head, tail = sentence[: match.end()].strip(), sentence[match.end() :].strip()
        if len(head) <= EAGER_FIRST_CHARS and has_words(head) and len(tail) >= _EAGER_MIN_CHARS:
            return [head, tail]
    return [sentence]
