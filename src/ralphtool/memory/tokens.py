"""The words of a text about code: names in every spelling, stems, and one word for synonyms.

Every comparison of texts begins here, so it works for any script and any text, in linear time, and caches the words
that it has seen.
"""

from __future__ import annotations

import re

_CHUNK = re.compile(r"[^\W_]+(?:[_.\-]+[^\W_]+)*")
_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+|\d+")
_SENTENCE_END = re.compile(r"[.!?:;][\s]|\n")
_LONGEST = 64  # characters of a word that count
_LONGEST_SENTENCE = 300
_MOST_REMEMBERED = 50_000
_SMALL = """\
    a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it
    its just may more most my no nor not of on or our s should so some such t than that the their them then there these
    they this those to too use used uses using very was we were what when where which while who will with would you
    your"""
COMMON = frozenset(_SMALL.split())
# Synonyms in software engineering. Names of projects and products don't belong here.
_ONE_WORD = """\
update upgrade bump
fail failure broken
exception error err
npe nullpointerexception
remove delete
directory dir folder
configuration config conf cfg
documentation doc docs
authentication auth authn authenticate
authorization authz
database db
environment env
parameter param
argument arg
dependency dep
repository repo
implementation impl
function func fn
variable var
command cmd
message msg
information info
specification spec
performance perf
vulnerability vuln cve
asynchronous async
synchronous sync
maximum max
minimum min
temporary temp tmp
arm64 aarch64
amd64 x86_64
tls ssl
oom outofmemory outofmemoryerror
segfault segv sigsegv
stuck hang freeze
certificate cert
credential cred
library lib
package pkg
application app
administrator admin
reference ref
attribute attr
property prop
object obj
string str
integer int
boolean bool
number num
index idx
length len
connection conn
request req
response resp
timeout timedout
source src
destination dest dst
previous prev
initialize init initialise
javascript js
typescript ts
python py
kubernetes k8s
internationalization i18n
localization l10n
"""
_cache: dict[str, tuple[str, ...]] = {}


def split_tokens(text: str) -> list[str]:
    """The words of a text in order, without common ones; a name both whole and in parts."""
    found: list[str] = []
    for chunk in _CHUNK.findall(text if text.isascii() else _normalize(text)):
        words = _cache.get(chunk)
        if words is None:
            words = _split_cached(chunk)
        found += words
    return found


def split_plain_words(text: str) -> list[str]:
    """All words, in lower case."""
    return _RUN.findall(text.lower())


def find_first_sentence(text: str) -> str:
    """The sentence that usually says what a text is about."""
    text = text.lstrip()[:_LONGEST_SENTENCE]
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def build_grams(text: str, size: int = 4) -> set[str]:
    """The runs of `size` characters, with punctuation as spaces: similar for words with similar spelling."""
    line = f" {' '.join(_RUN.findall(text if text.isascii() else _normalize(text))).lower()} "
    return {line[start : start + size] for start in range(max(1, len(line) - size + 1))}


def stem(word: str) -> str:
    """The word without its endings, so that its forms match. Simple: it need not be right, only consistent."""
    if len(word) <= 3 or not (word.isascii() and word.isalpha()):
        return word
    word = _strip_derivation(_strip_inflection(_strip_plural(word)))
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _strip_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _strip_inflection(word: str) -> str:
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
    return word


def _strip_derivation(word: str) -> str:
    for ending, rest in (
        ("ation", "at"),
        ("ment", ""),
        ("ness", ""),
        ("ly", ""),
        ("ion", ""),
        ("able", ""),
        ("er", ""),
        ("or", ""),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)] + rest
    return word


def _split_cached(chunk: str) -> tuple[str, ...]:
    words = tuple(_split_name(chunk))
    if len(_cache) >= _MOST_REMEMBERED:
        _cache.clear()
    if len(chunk) <= _LONGEST:
        _cache[chunk] = words
    return words


def _split_name(chunk: str) -> list[str]:
    """A whole name, the names in it, and their parts: `http.ServerMux` is also `servermux`, `server`."""
    parts = _PART.findall(chunk[: _LONGEST * 8])
    if len(parts) == 1:
        return _build_forms(parts[0].lower())
    found = [stem(chunk.lower()[:_LONGEST])]
    runs = _RUN.findall(chunk[: _LONGEST * 8])
    if len(runs) > 1:
        found += [run.lower()[:_LONGEST] for run in runs if len(_PART.findall(run)) > 1]
    for part in parts:
        found += _build_forms(part.lower())
    return [_SAME.get(found[0], found[0]), *found[1:]]


def _build_forms(word: str) -> list[str]:
    if word in COMMON:
        return []
    if word.isascii():
        stemmed = stem(word[:_LONGEST])
        return [_SAME.get(stemmed, stemmed)]
    word = word.casefold()
    return [word[:_LONGEST], *_build_pairs(word), *_strip_ending(word[:_LONGEST])]


def _strip_ending(word: str) -> list[str]:
    """Most other languages use endings where English uses small words."""
    return [word[: -1 if len(word) < 8 else -2]] if len(word) > 4 and not _is_joined(word[0]) else []


def _build_pairs(word: str) -> list[str]:
    """In scripts without spaces between words, or with joined endings, every pair of letters is a word too."""
    if not any(_is_joined(letter) for letter in word[:_LONGEST]):
        return []
    return [word[start : start + 2] for start in range(len(word) - 1)]


def _is_joined(letter: str) -> bool:
    """Thai to Burmese, and Japanese, Chinese, Korean."""
    return "\u0e00" <= letter <= "\u109f" or "\u3040" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7a3"


def _normalize(text: str) -> str:
    """One spelling for similar letters: without accents, in normal width."""
    import unicodedata

    # Remove the marks first: sorting a long run of them would take quadratic time.
    apart = unicodedata.normalize("NFKD", _strip_accents(text))
    return unicodedata.normalize("NFC", _strip_accents(apart))


def _strip_accents(text: str) -> str:
    import unicodedata

    return "".join(letter for letter in text if letter.isascii() or not unicodedata.category(letter).startswith("M"))


_SAME = {stem(word): stem(line.split()[0]) for line in _ONE_WORD.splitlines() for word in line.split()}
