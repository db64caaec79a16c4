"""Classifies an agent's error: the kind of trouble, and when the agent can continue.

Only errors that an agent reports are read here. The same words in its messages, or in the code that it writes, mean
nothing. In doubt it is "other": that costs an attempt, but waiting in vain can cost a whole night.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ralphtool.agents import Failure, Trouble

__all__ = ["failure"]

_KEPT = 3000  # characters kept at each end of an error; the middle is only bodies and stack traces
_DAY = 86400.0
_LONGEST = 35 * _DAY  # no subscription has a longer wait
_JUST_NOW = 300.0


def _compile_any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# --- the kind of trouble ----------------------------------------------------------------------------

# Names of packages, and errors of the user's own servers, say nothing about the agent's provider.
_NOT_THEIRS = _compile_any(
    r"cannot find (?:module|package)|no module named|cannot import name|\bis not defined\b",
    r"(?:unknown|unrecognized|unexpected) (?:option|argument)|\bMCP (?:client|server|startup|tool|error)",
)
# More than an account may use in a whole minute: waiting does not help.
_TOO_LARGE = _compile_any(r"request too large for .{0,200}tokens per min")
_CONTEXT = _compile_any(
    r"context[ _]?(?:window|length|size|limit)[ _]?(?:is |was )?(?:exceed|reached|too )|context ?overflow",
    r"exceed(?:s|ed)? (?:the )?[\w' -]{0,30}(?:context[ _](?:window|length|size|limit)|maximum number of tokens)",
    r"(?:prompt|conversation|input)(?: is)? too long|request_too_large|exceeded model token limit",
    r"maximum (?:context|prompt) length|reduce the length of the (?:messages|prompt|input)",
    r"(?:longer|greater) than the (?:model'?s )?context|token count.{0,40}exceeds the maximum",
    r"ran out of room in the model|has hit a token limit|exhausted context window",
)
# An account without credit needs a person, like a missing login: unlike a rate limit, it does not pass.
_MONEY = _compile_any(
    r"credit[ _]balance|insufficient[ _](?:\w+ )?(?:quota|credit|funds|balance)|out of credits|payment required",
    r"billing[ _](?:hard[ _]limit|error|not[ _]active)|check your billing details|budget has been exceeded",
    r"spend(?:ing)? (?:cap|limit)|(?:usage|more) credits required|requires? (?:more|usage) credits",
    r"quota exceeded\. check your plan and billing|current quota, please check your plan.{0,120}platform\.openai",
    r"upgrade to plus: |limit is set to \$0|usage allocation has been disabled|doesn't include (?:extra )?usage",
)
_LIMIT = _compile_any(
    r"rate[ _-]?limit[ _-]?(?:error|exceeded|reached|hit|ed\b)|\A\W*rate_limit\W*\Z|rate increased too quickly",
    r"(?:exceed|reach|hit)[^.\n]{0,60}\brate[ _-]limit|too[ _]many[ _]requests|\bthrottl(?:ed|ing)",
    r"resource.?exhausted|resource has been exhausted|free usage exceeded|out of (?:extra )?usage\b",
    r"(?<!disk )(?<!storage )\bquota[ _]?(?:limit )?exceeded|exceeded your [\w ]{0,20}quota|quota will reset",
    r"exhausted your [\w ]{0,20}(?:quota|capacity)|(?:terminal|retryable)quotaerror|(?<!memory )usage[ _]?limit",
    r"(?:hit|reached|exceeded) your [\w'\u2019 -]{0,40}limit\b",
    r"(?:session|hour|hourly|daily|weekly|monthly|opus|sonnet|fast|free|message|go) limit (?:has been )?reached",
)
_LOGIN = _compile_any(
    r"(?:run|use) /login|not (?:logged|signed) in|(?:log|sign) ?in again|login expired|re-?authenticate\b",
    r"failed to (?:log ?in|sign in|authenticate)|error authenticating|able to authenticate|terminal to (?:log|auth)",
    r"(?:invalid|incorrect|missing|no|expired) (?:[\w.]+[ -]){0,2}api[ _-]?key|invalid_(?:api_key|grant)\b",
    r"provide an api key|api[ _-]?key (?:is |has |was )?(?:not (?:valid|found|set)|invalid|missing|expired|revoked)",
    r"(?:missing|specify|setting|set) (?:the )?(?:environment variable:? )?\W?(?-i:[A-Z]\w+_(?:KEY|TOKEN|PROJECT))\b",
    r"(?:oauth|access|refresh|bearer) token\b.{0,40}(?:expired|revoked|invalid|not be refreshed|used)",
    r"\bunauthori[sz]ed\b(?! (?:access|model))|\bunauthenticated\b|authentication[ _]?(?:error|failed|required)",
    r"providerautherror|loadapikeyerror|(?-i:PERMISSION_DENIED)|permissiondeniederror|permission_error\b",
    r"(?:no|resolve) authentication method|invalid bearer token|\b(?:authentication|auth|default) credentials",
    r"organization has been disabled|not have access to claude|set an auth method",
)
_OVERLOAD = _compile_any(
    r"\boverloaded|high (?:demand|load)\b|(?:at|no) capacity\b|capacity (?:is )?unavailable",
    r"internal.?server.?error|\bserver_error\b|service.?unavailable|status[\"\\]{0,4}:\W{0,6}unavailable",
    r"bad.?gateway|gateway.?time-?out|\bapi_error\b|internal error (?:has )?(?:occurred|encountered)",
    r"error occurred while processing your request|(?<!resource )temporarily unavailable",
)
_NETWORK = _compile_any(
    r"\bE(?:CONN(?:REFUSED|RESET|ABORTED)|NOTFOUND|AI_AGAIN|TIMEDOUT|NET(?:UNREACH|DOWN)|HOST(?:UNREACH|DOWN))\b",
    r"fetch failed|failed to fetch\W*\Z|error sending request|\bUND_ERR_|\A\W*(?:TypeError: )?terminated\W*\Z",
    r"connection ?(?:was |has been )?(?:error|refused|reset|closed|aborted|lost|timed ?out|timeout|failed)",
    r"(?:unable to|cannot|could not|failed to) connect to (?:the )?(?:api|anthropic|openai)|unable to connect\. is",
    r"connect ?error|(?-i:\b(?:Connect|Read)Timeout\b)|connection attempts failed|upstream connect error",
    r"stream (?:disconnected|closed) before (?:comp|resp)|socket (?:hang up|connection was closed|disconnected)",
    r"network (?:error|is unreachable|connection|socket)|getaddrinfo|dns error|name resolution|could not resolve host",
    r"(?:request|response|headers?|read) time(?:d |-)?out|apitimeouterror|timeout waiting for SSE|reset by peer",
    r"\A\W*(?:litellm\.)?timeout(?::|\W*\Z)|certificate[ _](?:has|is|verif)|self[ _-]signed|\bssl(?: error|:)",
    r"\btls\b.{0,40}(?:error|fail|handshake)|peer closed connection|other side closed|premature close",
    r"server disconnected|error decoding response body|incomplete (?:chunked read|message)|failedtoopensocket",
)
_Row = tuple[Trouble, re.Pattern[str]]
_ALL: tuple[_Row, ...] = (
    ("other", _NOT_THEIRS),
    ("context", _TOO_LARGE),
    ("context", _CONTEXT),
    ("login", _MONEY),
    ("rate-limit", _LIMIT),
    ("login", _LOGIN),
    ("overload", _OVERLOAD),
    ("network", _NETWORK),
)
# If the HTTP status is known, only texts that are more specific than it count.
_BESIDE: dict[Trouble, tuple[_Row, ...]] = {
    "rate-limit": (("context", _TOO_LARGE), ("login", _MONEY)),  # its text may mention long contexts
    "overload": (("context", _CONTEXT),),
    "login": (("rate-limit", _LIMIT),),
    "other": _ALL[:-2],  # a server that refuses a request is reachable and not overloaded
}
_COUNTED = r"tokens?|char|bytes|lines?|files?|tests?|errors?|warnings?|items|times|turns|steps|m?s\b|[km]?b\b|seconds"
_STATUS = re.compile(
    r"(?<![a-z])(?:status|error|code|https?(?:/[\d.]{1,3})?)(?:[ _]?(?:status|code|error)){0,3}[\s:=(\[\"'\\]{1,12}"
    rf"([45]\d\d)(?![\w/%-]|[.,]\d|\s?(?:{_COUNTED}))"
    r"|\A\W{0,4}([45]\d\d)(?:\Z|\s*[-:{(]|\s+(?:status|(?-i:[A-Z])))",
    re.IGNORECASE,
)


def classify_status(status: int) -> Trouble:
    match status:
        case 401 | 402 | 403 | 407:
            return "login"
        case 408:
            return "network"
        case 413:
            return "context"
        case 429:
            return "rate-limit"
    return "overload" if 500 <= status < 600 and status not in (501, 505) else "other"


def classify_text(text: str) -> Trouble:
    text = _trim_middle(text)
    found = _STATUS.search(text)
    return _classify(text, int(found[1] or found[2]) if found else None)


def failure(text: str, status: int | None = None, reset_at: float | None = None) -> Failure:
    """The failure that an error text describes, with the HTTP status and the reset time if the agent reports them."""
    trouble = classify_text(text) if status is None else _classify(_trim_middle(text), status)
    now = time.time()
    told = None if reset_at is None else _check_is_ahead(reset_at, now)
    if told is None and trouble in ("rate-limit", "overload", "login"):  # a lost connection has no reset time
        told = parse_reset_time(text, now)
    return Failure(trouble, _trim_middle(text), told)


def _classify(text: str, status: int | None) -> Trouble:
    told = classify_status(status or 0)
    rows = _BESIDE.get(told, ()) if status and status >= 400 else _ALL  # a stream that breaks off has status 200
    return next((trouble for trouble, pattern in rows if pattern.search(text)), told)


def _trim_middle(text: str) -> str:
    """Both ends of a text: searching a megabyte would be slow."""
    return text if len(text) <= 2 * _KEPT else f"{text[:_KEPT]}\n…\n{text[-_KEPT:]}"


# --- the reset time ---------------------------------------------------------------------------------

# "resets", "try again at", "retryDelay:", "x-ratelimit-reset-requests:", "limit reached|": what comes before a time.
_CUE = re.compile(
    r"(?:(?<![A-Za-z])(?<!onnection )(?<!tream )(?i:reset|retry|again|wait|regain access)|(?<=[a-z])Re(?:set|try)"
    r"|(?i:limit reached)(?=\|))(?i:s|t?ing)?(?i:[\s_\"'\\:={-]{0,8}"
    r"(?:at|in|on|after|for|delay|time|stamp|seconds?|requests|tokens|about|approximately|ms)){0,4}[\s\"'\\:=|(~]{0,12}"
)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:T| | at )(\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(?: ?([+-]\d\d:?\d\d)|Z)?")
_EPOCH = re.compile(r"(?:\d{13}|\d{10}(?:\.\d{1,9})?)(?!\d)")
_PART = re.compile(
    r"[\s,]{0,4}(?:and\s{1,4})?(\d{1,9}(?:\.\d{1,9})?)\s{0,4}"
    r"(milliseconds?|ms|[dhms]|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)(?![a-z])",
    re.IGNORECASE,
)
_SECONDS = {"d": _DAY, "h": 3600.0, "m": 60.0, "s": 1.0}
_BARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?![\w%:/-]|\.\d|[ \t]+[A-Za-z])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"({'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_DATE = re.compile(
    rf"(?:[a-z]{{3,9}},\s{{1,4}})?(?:{_MONTH}\s{{1,4}}(\d{{1,2}})(?:st|nd|rd|th)?|(\d{{1,2}})\s{{1,4}}{_MONTH})"
    r"(?![\d:])(?:,?\s{1,4}(\d{4})(?![\d:]))?",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"[\s,]{0,4}(?:at\s{1,4})?(\d{1,2})(?:(?::(\d\d))?(?::\d\d)?\s?([ap])\.?m\b|:(\d\d)(?::\d\d)?(?!\d))", re.IGNORECASE
)
_ZONE = re.compile(r"\.?\s{0,4}\(?(UTC|GMT|Z|[PE][SD]?T|[A-Z][A-Za-z_]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){1,2})\b")


def parse_reset_time(text: str, now: float) -> float | None:
    """The reset time in a text such as "try again in 2m 30s"; None if it has none."""
    text = _trim_middle(text)
    told = (_parse_after_cue(text, cue, now) for cue in _CUE.finditer(text))
    return next((ahead for moment in told if moment and (ahead := _check_is_ahead(moment, now))), None)


def _check_is_ahead(moment: float, now: float) -> float | None:
    """A time to wait for, in seconds, from seconds or milliseconds; None if it is in the past, or absurd."""
    seconds = moment if moment < 1e11 else moment / 1000
    return seconds if now < seconds <= now + _LONGEST else None


def _parse_after_cue(text: str, cue: re.Match[str], now: float) -> float | None:
    at = cue.end()
    try:
        if found := _ISO.match(text, at):
            return _parse_iso(text, found)
        if found := _EPOCH.match(text, at):
            return float(found[0])
        if seconds := _parse_duration(text, at):
            return now + seconds
        if found := _BARE.match(text, at):
            return _parse_keyed_number(cue[0].lower(), float(found[1]), now)
        return _parse_calendar(text, at, now)
    except (ValueError, OverflowError, OSError, KeyError):  # the 31st of February, 25 o'clock, an unknown zone
        return None


def _parse_iso(text: str, found: re.Match[str]) -> float:
    moment = datetime.fromisoformat(f"{found[1]}T{found[2]}{found[3] or ''}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC if found[0].endswith("Z") else _parse_zone(text, found.end()))
    return moment.timestamp()


def _parse_duration(text: str, at: int) -> float:
    total = 0.0
    while part := _PART.match(text, at):
        unit = part[2].lower()
        total += float(part[1]) * (0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]])
        at = part.end()
    return total


def _parse_keyed_number(key: str, number: float, now: float) -> float | None:
    """A number without a unit means seconds only if its key implies that, like `retry-after`."""
    if re.search(r"ms\W*\Z", key):
        return now + number / 1000
    return now + number if "after" in key or "seconds" in key else None


def _parse_calendar(text: str, at: int, now: float) -> float | None:
    date = _DATE.match(text, at)
    clock = _CLOCK.match(text, date.end() if date else at)
    if not (last := clock or date):
        return None
    moment = datetime.fromtimestamp(now, _parse_zone(text, last.end())).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    if clock:
        hour = int(clock[1]) % 12 + 12 * (clock[3] in "pP") if clock[3] else int(clock[1])
        moment = moment.replace(hour=hour, minute=int(clock[2] or clock[4] or 0))
    if date:
        month, day = _MONTHS.index((date[1] or date[4]).lower()) + 1, int(date[2] or date[3])
        moment = moment.replace(year=int(date[5] or moment.year), month=month, day=day)
    if moment.timestamp() < now - _JUST_NOW:  # a time that has only just passed does not mean tomorrow
        moment = moment.replace(year=moment.year + 1) if date else moment + timedelta(days=1)
    return moment.timestamp()


def _parse_zone(text: str, at: int) -> tzinfo | None:
    """The time zone named there; None means the zone of this machine."""
    found = _ZONE.match(text, at)
    if found is None or found[1] in ("UTC", "GMT", "Z"):
        return UTC if found else None
    short = {"P": "America/Los_Angeles", "E": "America/New_York"}
    return ZoneInfo(found[1] if "/" in found[1] else short[found[1][0]])
