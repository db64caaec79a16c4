"""Distinguishes failures: the parts that change from run to run are masked, and the rest makes a fingerprint.

Addresses, host names, ids, times, counters, versions and the folders of paths are masked. What distinguishes failures
is kept: names in quotes, the file's own name, error codes, HTTP statuses, exit statuses and signals, and names whose
number is a part of them, such as utf8 and int64.

No pattern starts in the middle of a match of its own kind, and none backtracks far, so the time is linear for any text.
Groups are never repeated possessively: before 3.11.5, Python loses its position if such a group fails in the middle.
A repeated group that must not backtrack is matched ahead and referred to.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = "<*>"

_COLOUR = r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[@-Z\\^_])"
# Curly quotes are written as code points: they are easily confused with others.
_ENDS = r"\s\"'`\u2018\u2019\u201c\u201d«»<>()\[\]{},;=|│"
_HEX = "[0-9a-fA-F]"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}+"
# The alphabet of the random suffixes in Kubernetes: no vowels, so that no words appear.
_POD = "[bcdfghjklmnpqrstvwxz2456789]"
_UNIT = (
    r"(?:ms|[µμun]s|s|secs?|seconds?|millis(?:econds?)?|mins?|minutes?|hrs?|hours?|days?|"
    r"[kKMGTP]i?[Bb](?:ytes?|its?)?(?:/s(?:ec)?|ps)?|B|bytes?|bits?|bps|[kKMGT]?Hz|%|[AaPp][Mm]|UTC|GMT|CES?T|[PECM][SD]T)"
)
# Things that machines have many of: the number after one identifies it, and says nothing about the failure.
_COUNTED = (
    r"(?:bond|br|brick|bridge|broadcast|broker|card|channel|chip|client|consumer|container|cpu|datanode|dimm|disk|dm|docker|"
    r"drive|em|en|eno|(?:en|wl)p\d{1,3}s|ens|eth|executor|fan|gpu|hci|hd[a-d]|host|ib|irq|job|loop|lun|md(?!5(?!\d))|"
    r"mmcblk|node(?!(?:1[468]|2[024])(?!\d))|nvme|ost|part|partition|pod|pool|port|ppp|producer|psu|pts|rack|rank|rdd|"
    r"replica|scsi|sd[a-z]|sensor|server|session|shard|slave|slot|stage|storage|tap|task|thread|tty(?:s|usb)?|tun|utun|"
    r"vd[a-z]|veth|vlan|vm|volume|wl|wlan|worker|xvd[a-z])"
)
_LABEL = r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,62}+\.(?=[A-Za-z0-9]))"  # of a host name
# Countries whose domain is not also the ending of source files, unlike .py, .rs, .pl or .sh.
_COUNTRY = (
    r"(?:a[eru]|b[egr]|c[ahnz]|d[ek]|es|eu|f[ir]|gr|h[ku]|i[elrt]|jp|kr|mx|n[lz]|pt|r[ou]|s[egk]|t[rw]|u[ak]|vn|za)"
)
_DOMAIN = rf"(?:com|net|org|edu|gov|mil|info|biz|io|internal|local|localdomain|lan|corp|intranet|svc|{_COUNTRY})"
# Skips most of a text, where none of the kinds can begin: common words, and characters that end a token.
_PROMISING = (
    rf"(?=[A-Za-z]++(?:[^A-Za-z{_ENDS}]|(?<=[A-Za-z]{{16}}))|[^A-Za-z{_ENDS}]|{_MONTH}\s|"
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s)"
)
# The order matters: longer kinds come before those that could be a part of them.
_KINDS = {
    "url": r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}+://[^\s\"'`<>|]*+",
    "spaced": (
        r"(?<=[\"'`\u2018\u201c])(?:[A-Za-z]:[\\/]|\\\\|~?/)"
        r"(?:[^\s\"'`\u2018-\u201d<>|]|[ ](?![-/&.])){1,400}(?=[\"'`\u2019\u201d])"
    ),
    "digest": r"(?:SHA256|SHA512|sha512|sha1|MD5)[:-][\w+/=-]{20,}+",
    "path": (
        rf"(?<![^{_ENDS}])(?!\d++[/\\])(?:[A-Z]:\\Program Files(?: \(x86\))?)?"
        rf"(?:[^{_ENDS}/\\]*+[/\\])+[^{_ENDS}/\\]*+"
    ),
    "at": r"(?<![\w.+-])(?![0-9a-fA-F]{6,16}+@\d)[\w.+-]++@[\w^~*-]++(?:\.[\w-]++)*",
    # rdd_21_2, attempt_1445_0020_m_000001_0; a single number is usually part of a name, unless it is long
    "serial": (
        r"(?!test)(?:[A-Za-z]{2,30}+(?:_[A-Za-z]{2,30}+){0,2}_-?\d++(?:_(?:\d++|[a-z]{1,12}+\d{1,6}+|[a-z](?=_\d)))+|"
        r"(?!(?i:err|code|status|http))[a-z]{2,30}+_-?\d{4,40}+)(?![\w(])"
    ),
    "location": r"[A-Z]{1,3}\d{1,4}+(?:[-:](?:[A-Z]{1,2}\d{1,4}+|[A-Z][0-9A-F]?)(?![^\W_])){2,8}",
    "host": (
        r"(?<=fatal: \[)[\w.-]{1,200}+(?=\])|(?<=host=)[\w.-]{1,200}+(?!\()|"
        r"(?:(?<=(?:host|node|slot|rack) )|(?<=domain ))(?=[A-Za-z._-]{0,60}+\d)[A-Za-z][\w-]{1,60}+(?![\w(.'\"`:])"
    ),
    "counted": (
        rf"(?=[A-Za-z]++[_-]?[A-Z]?\d)(?<![.'\"`\w])(?<!::)(?i:{_COUNTED})(?:_?|-[A-Z])\d{{1,9}}+(?![\w(.'\"`]|::)"
    ),
    # With a port, or beside its address; or with a digit or a hyphen, more labels than a name in a program has, and not
    # beginning like a package. In quotes it distinguishes failures.
    "machine": (
        rf"(?<![.'\"`])(?={_LABEL})(?:"
        rf"{_LABEL}{{1,12}}(?:{_DOMAIN}:\d{{2,5}}+(?!\w)|[a-z]{{2,24}}+(?=[ ]?[\[(]\d{{1,3}}\.\d))|"
        rf"(?=[A-Za-z._]{{0,100}}+[0-9-])(?!(?:com|org|net|io|java|javax)\.){_LABEL}{{2,12}}"
        r"(?:(?:(?<=\.(?:com|edu|gov|net|org)\.)|(?<=\.(?:ac|co|ne|or)\.))[a-z]{2}|"
        r"com|edu|gov|mil|net|org|arpa|internal|local)(?![\w(-]|\.\w))"
    ),
    "numbered": r"(?<![.:'\"`\w/@])[a-z]{4,30}+\d{2,9}+(?![\w(.'\"`/-]|::)",
    "ticket": r"(?:[A-Z]{2,4}+\d{6,20}+|[A-Z]\d{8,20}+)(?!\w)",
    # cards, interfaces and buses: 00:1a:2b:3c:4d:5e, 001a.2b3c.4d5e, 0000:3b:00.0, 0T00:00:2:1
    "hardware": (
        rf"(?:{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5,31}}|{_HEX}{{4}}(?:\.{_HEX}{{4}}){{2}}|"
        rf"(?:{_HEX}{{4}}:|(?=[\d:]{{0,4}}+[a-fA-F])){_HEX}{{2}}:{_HEX}{{2}}\.[0-7]|"
        r"\d[0-9A-Z]{0,3}+(?::\d[0-9A-Z]{0,3}+){3,8})(?![\w:-])"
    ),
    "uuid": rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "moment": r"\d{4}-\d\d-\d\dT\d\d[\d:._]*+(?:Z|[+-]\d\d:?\d\d)?",
    "day": (
        r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}+,?\s)?"
        rf"(?:\d\d?[ /-]{_MONTH}[ /-]\d{{4}}|{_MONTH}[ ]{{1,2}}\d\d?(?!\d))"
        r"(?:[ :,T]{1,2}\d\d:\d\d[\d:.]*+"
        # syslog has the host name between the time and the program
        r"(?:\s[A-Za-z0-9][\w.-]{0,80}+(?=\s[\w./()-]{1,60}+(?:\[\d{1,9}\])?:)"
        r"|\s(?:UTC|GMT|[A-Z]{3,4}(?=\s\d{4}\b)))?)?"
        r"|[IWEF]\d{4}(?=\s\d\d:\d\d:\d\d)"
    ),
    "word": (
        rf"(?:(?<=-){_POD}{{6,10}}-{_POD}{{5}}|(?!ed25519)(?=[a-f]*+\d)(?=\d*+[a-f])[0-9a-f]{{7,}}+|"
        r"(?=[a-f]*+\d++[a-f])[0-9a-f]{5,6}+|"
        r"(?=[A-F]*+\d)(?=\d*+[A-F])[0-9A-F]{8,}+|tmp[._-]?(?=[A-Za-z_]{0,12}+\d)\w{6,12}+|tmp\.[A-Za-z0-9]{6,12}+|"
        r"cc[A-Za-z0-9]{6}+(?=\.(?:o|s|res)\b)|x\d++)(?![^\W_])"
    ),
    "hexadecimal": rf"0[xX]{_HEX}++",
    "random": r"[A-Za-z0-9]{16,}+",
    "ipv6": (
        rf"(?<![:.])(?:(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}|"
        rf"(?=[a-fA-F:]{{0,39}}\d)(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?::(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?)"
        r"(?::\d{1,5})?(?!\w|:\w)"
    ),
    "release": r"[vV]?\d{1,5}+(?:\.\d{1,9}+){2,3}[-+][A-Za-z][0-9A-Za-z]{0,30}+(?:\.\d{1,9}+){0,3}",
    "number": (
        r"(?<!_)(?:(?<![^\s(\[:=,\"'])[+-]|[vV](?=\d++\.))?\d{1,40}+(?=(?P<parts>(?:[.,:_/'\u2019\u00a0\u202f-](?!0[xX])\d{1,40}+){0,12}))(?P=parts)"
        r"(?:[-.+]?(?:alpha|beta|rc|dev|post|pre|SNAPSHOT|Final)(?![a-z])[-.]?\d*+|[eE][+-]?\d{1,4}+)?"
        rf"(?:[smhd](?:\d{{1,9}}+[a-zµμ]{{1,2}}+){{1,5}}|\s?{_UNIT}(?!\w)|[mhdgkKMGTx](?!\w))?(?!\w)"
    ),
}

_ROOTED = r"(?:[A-Za-z]:)?[/\\]|(?:~|\.\.?)[/\\]"
_ADDRESS = r"\d{1,3}+(?:\.\d{1,3}+){3}(?!\.?\w)"
_FILE = r"[^:?]*\.[A-Za-z]\w{0,9}(?:[:?].*)?"
_CHANGE = r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]"
_DEEPEST = 20  # a package's or test's name does not have more folders
_PORT = r":\d{4,5}$"
_VERSION = r"[v^~*]?\d.*|[0-9a-f]{5,16}"
_TAGS = frozenset(["latest", "next", "beta", "canary", "stable", "main", "master", "sha256"])

# Numbers after these words are codes, which distinguish failures.
_CODES = {
    *("code", "curl", "errcode", "errno", "errorcode", "exit", "exitcode", "hresult", "rc", "retcode", "returncode"),
    *("signal", "sqlstate", "status", "statuscode", "winerror"),
}
# After these, only well-known HTTP statuses are codes.
_STATUS_AFTER = {
    *("assert", "be", "client", "equal", "equals", "error", "errors", "expected", "failed", "get", "got", "http"),
    *("post", "put", "received", "response", "returned", "server", "was", "where", "with"),
}
_STATUS = r"20[0-46]|30[1-478]|4(?:[01]\d|2\d|31|51)|5(?:0\d|1[01]|2\d|30)"
_NEXT_TO_STATUS = (
    r"(?i)[\s(:\"'-]{1,3}(?:[!=]==?|= <|ok\b|found|moved|not |bad |unauthorized|payment|forbidden|method |request |"
    r"conflict|gone\b|page |payload|unprocessable|too many|internal|service|gateway|client error|server error)"
)
_REQUESTED = r"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) \S{1,200}+ $"
_LAST_WORD = r"([A-Za-z]+)([ \t:=#(\[\"'<]{0,5})$"
_LINE = 120
_REACH = 24  # characters before a number that are searched for its meaning
# Names with a number that is not a counter.
_PARAMETERS = r"::\w{1,100}+\[[^\]\s]{0,60}+$"
_NUMBERED = ("utf", "iso", "sha", "latin", "base", "8859", "aes", "rsa")
# Encodings, types, hashes and products: their number is a size or a version. Codes and steps: it is the point.
_VERSIONED_NAMES = """\
    adler ansi ascii blake curve ecdsa murmur secp xxhash bool char complex double fixed float long quad real short
    simd uint word alpine angular apache armv boost centos clang cuda cudnn debian django dotnet fedora flink gradle
    graalvm hadoop http java jetty junit kotlin laravel linux llvm macos maven mongo mongodb mysql netcoreapp
    netstandard node nodejs numpy oauth opencv openjdk openssl oracle perl postgres postgresql python pytorch rails
    react redis resnet rhel ruby rust scala spark spring sqlite swift symfony temurin tomcat torch ubuntu vulkan windows
    case chapter code errno error example exit fail issue level line part phase problem puzzle rule section signal spec
    status step story todo unit"""
_VERSIONED = frozenset(_VERSIONED_NAMES.split())

# Quotes differ between languages, and the text in them is kept anyway.
_QUOTES = dict.fromkeys([*b"\"'`", 0xB4, *range(0x2018, 0x2020)])
_BULLETS = dict.fromkeys([0x2022, 0x203A, 0xD7, *range(0x2190, 0x21FF), *range(0x23AF, 0x23B0)], " ")
_BOXES = dict.fromkeys([*range(0x2500, 0x2600), *range(0x2713, 0x2719), *range(0x276C, 0x2772), 0x27A4], " ")
_DECORATION: dict[int, str | None] = {**_QUOTES, **_BULLETS, **_BOXES}
# A private character, neither a letter nor a space: if a text contains it, it is removed like a placeholder.
_MARK = "\ue000"
_PADDED = rf"\[\s++(?={_MARK})"
# Both begin with a character class that can be searched for quickly; only then is the text before it checked.
_GLUED = rf"[^\w\s](?<![^\w\s{_MARK}].)(?:(?<={_MARK})|[^\w\s{_MARK}]*+{_MARK})[^\w\s]*+"
_RULES = r"([=\-_*~.#^+|,:;])(?:\1{2,}|(?<=[.,:;])(?<![.,:;\s].)[.,:;]*+(?!\S)|(?<=[|^~])(?<!\S.)[|^~]*+(?!\S))"


def mask(text: str) -> str:
    """The text without colours, and with placeholders for the parts that change from run to run."""
    return _compile_volatile().sub(_replace_match, compile_pattern(_COLOUR).sub("", text))


def fingerprint(text: str) -> str:
    """Equal for the same failure, whenever and wherever it happens."""
    from hashlib import blake2b

    return blake2b(_strip_decoration(text).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _strip_decoration(text: str) -> str:
    """The text without placeholders, the punctuation attached to them, and decoration."""
    text = mask(text).casefold().translate(_DECORATION)
    marked = compile_pattern(_PADDED).sub("[", text.replace(f"{PLACE}/", "").replace(PLACE, _MARK))
    bare = compile_pattern(_GLUED).sub(" ", marked)
    return " ".join(compile_pattern(_RULES).sub(" ", bare).split()) or " ".join(text.split())


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiled on first use: commands that compare nothing should not pay for it."""
    return re.compile(pattern)


@cache
def _compile_volatile() -> re.Pattern[str]:
    kinds = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items())
    return re.compile(rf"(?<![^\W_]){_PROMISING}(?:{kinds})")


def _replace_match(match: re.Match[str]) -> str:
    replace = _REPLACEMENTS.get(match.lastgroup or "")
    return replace(match) if replace else PLACE


def _strip_address(match: re.Match[str]) -> str:
    scheme, _, rest = match[0].partition("://")
    if scheme.startswith(("file", "webpack")):
        return _strip_folders(rest)
    return PLACE + match[0][len(match[0].rstrip(").,;:]}")) :]


def _strip_path(match: re.Match[str]) -> str:
    before, scheme, _ = match[0].partition("://")
    if scheme:  # something else precedes the address
        return before.rpartition(":")[0] + ":" + PLACE
    return _strip_folders(match[0])


def _strip_folders(path: str) -> str:
    """A file's own name distinguishes failures; the location of the checkout does not.

    Without a file name at the end it may be a package, a media type or a test, and is kept whole.
    """
    *folders, name = path.replace("\\", "/").rstrip("/").split("/")
    rooted = compile_pattern(_ROOTED).match(path)
    if not rooted and compile_pattern(_ADDRESS).match(name):  # Java writes host/address:port
        return PLACE
    if path.startswith("Test"):  # a Go test with its subtests
        return path
    if not rooted and len(folders) < _DEEPEST and not compile_pattern(_FILE).fullmatch(name):
        return "/".join(map(mask, [*folders, name]))
    if folders == [""]:
        return "/" + mask(name)
    if "/".join(folders).lower() in ("/home", "/users", "c:/users"):
        return PLACE
    package = _find_package(folders) if name.startswith("index.") else ""  # every package has such a file
    if package:
        return f"{PLACE}/{package}/{mask(name)}"
    return _find_stable_end([*folders[-3:], name.partition("?")[0]])


def _find_package(folders: list[str]) -> str:
    if "node_modules" not in folders:
        return ""
    inside = folders[len(folders) - folders[::-1].index("node_modules") :]
    return "/".join(inside[: 2 if inside[:1] and inside[0].startswith("@") else 1])


def _find_stable_end(parts: list[str]) -> str:
    """The last part with letters left after masking."""
    for part in reversed(parts):
        short = mask(part)
        if any(map(str.isalpha, short)):
            return f"{PLACE}/{short}"
    return PLACE


def _strip_person(match: re.Match[str]) -> str:
    """Masks an e-mail address or a login; a package keeps its name and loses its version."""
    name, _, rest = match[0].rpartition("@")
    if rest in _TAGS:
        return match[0]
    return f"{name}@{PLACE}" if compile_pattern(_VERSION).fullmatch(rest) else PLACE


def _strip_serial(match: re.Match[str]) -> str:
    """Keeps the kind of thing that has the id: a block is not a task."""
    return f"{match[0].rstrip('0123456789').partition('_')[0]} {PLACE}"


def _strip_counted(match: re.Match[str]) -> str:
    """Keeps the letters before the first digit: enp3s0 and enp0s31 are both network cards."""
    return re.split(r"[\d_-]", match[0], maxsplit=1)[0] + f" {PLACE}"


def _strip_number(match: re.Match[str]) -> str:
    """Keeps the letters, and that there was a number: fsnode131 is a machine, fsnode may not be one."""
    name = match[0].rstrip("0123456789")
    return match[0] if _is_versioned(name) else f"{name}_{PLACE}"


def _mask_unless_versioned(match: re.Match[str]) -> str:
    """After a word for a machine, a name like python3 is still a product; test-3 is a machine."""
    return match[0] if match[0].isalnum() and _is_versioned(match[0].rstrip("0123456789")) else PLACE


def _is_versioned(name: str) -> bool:
    name = name.lower()
    return name in _VERSIONED or name.endswith(_NUMBERED) or name.startswith(("test", "lib"))


def _mask_unless_word(match: re.Match[str]) -> str:
    """Names change between letter cases and digits now and then; random strings do so all the time."""
    run = match[0]
    changes = len(compile_pattern(_CHANGE).findall(run))
    most = 2 if run.isupper() or run.islower() else (len(run) - 1) // 4
    return PLACE if changes > most or run.isdigit() else run


def _mask_unless_code(match: re.Match[str]) -> str:
    return match[0] if _is_code(match) else PLACE


def _is_code(match: re.Match[str]) -> bool:
    number, text, start = match[0], match.string, match.start()
    before = text[max(0, start - _REACH) : start]
    if "[" in before and compile_pattern(_PARAMETERS).search(text, max(0, start - 2 * _LINE), start):
        return True
    if before.endswith("-"):
        return _is_numbered(before[:-1]) and not compile_pattern(_PORT).search(number)
    if not number.lstrip("+-").isdigit() and not (number.startswith("0x") and len(number) == 10):
        return False
    word = compile_pattern(_LAST_WORD).search(before)
    if word and _counts_as_code(word, before, text[match.end() : match.end() + 4]):
        return True
    return compile_pattern(_STATUS).fullmatch(number) is not None and _is_status(word, match)


def _is_numbered(name: str) -> bool:
    """ORA-00942, CVE-2021-44228, utf-8; but not worker-3."""
    word = re.split(r"[^A-Za-z0-9]", name)[-1]
    return (len(word) > 1 and word.isupper()) or word.lower().endswith(_NUMBERED)


def _counts_as_code(word: re.Match[str], before: str, after: str) -> bool:
    name = word[1].lower()
    if name in ("with", "value", "of", "returned"):
        return "exit" in before.lower() or after == " exi"
    if name == "error":
        # with a colon it begins a sentence, with a bracket it is a log level; a number before " ---" is a process id
        return not set(word[2]) & {":", "["} and after != " ---"
    return name in _CODES or word[1].endswith(("Code", "Status"))


def _is_status(word: re.Match[str] | None, match: re.Match[str]) -> bool:
    if word and (word[1].lower() in _STATUS_AFTER or word[1].endswith(("Error", "Exception"))):
        return True
    before = match.string[max(0, match.start() - 2 * _LINE) : match.start()]
    after = match.string[match.end() : match.end() + 20]
    if "HTTP/" in before[-12:] or before.endswith("= ") or (before.endswith("(") and after.startswith(")")):
        return True
    return any((compile_pattern(_NEXT_TO_STATUS).match(after), compile_pattern(_REQUESTED).search(before)))


_REPLACEMENTS: dict[str, Callable[[re.Match[str]], str]] = {
    "url": _strip_address,
    "spaced": lambda match: _strip_folders(match[0]),
    "path": _strip_path,
    "at": _strip_person,
    "serial": _strip_serial,
    "counted": _strip_counted,
    "numbered": _strip_number,
    "ticket": _strip_number,
    "host": _mask_unless_versioned,
    "random": _mask_unless_word,
    "hexadecimal": _mask_unless_code,
    "number": _mask_unless_code,
}
