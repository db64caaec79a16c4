"""How every view and every message writes durations, times, costs and counts.

No imports at the top: `ralphtool watch` and `ralphtool list` must start quickly.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime


def format_duration(seconds: float) -> str:
    """As in `4.2 s`, `45 s`, `2 min 03 s`, `31 min`, `1 h 05 min`."""
    if 0 < seconds < 9.95:
        return f"{max(seconds, 0.1):.1f}".removesuffix(".0") + " s"
    whole = int(max(seconds, 0) + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _join_units(whole // 60, "min", whole % 60, "s")
    minutes = (whole + 30) // 60
    return _join_units(minutes // 60, "h", minutes % 60, "min")


def _join_units(large: int, unit: str, small: int, rest: str) -> str:
    return f"{large} {unit} {small:02} {rest}" if small else f"{large} {unit}"


def format_stopwatch(passed: float) -> str:
    """As in `04:05`, `1:02:03`: a running clock, or the time since the start of a run."""
    minutes, second = divmod(int(max(0.0, min(passed, 1e9))), 60)
    return f"{minutes:02}:{second:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def format_cost(dollars: float) -> str:
    """As in `$1.23`; empty if the cost is unknown."""
    return f"${dollars:,.2f}" if dollars >= 0.005 else "<$0.01" if dollars > 0 else ""


def format_tokens(number: float) -> str:
    """As in `950`, `12.3k`, `4M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.99995 * size:  # else 999,950 would be 1000k
            return f"{number / size:.1f}".removesuffix(".0") + letter
    return str(int(number))


def pluralize(number: int, one: str, many: str) -> str:
    """As in `1 story`, `2 stories`."""
    return f"{number} {one if number == 1 else many}"


def format_utc(seconds: float) -> str:
    """As in 2026-03-01T22:00:00Z, for programs."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_day_and_time(seconds: float) -> str:
    """As in `Sun 1 Mar 2026, 22:00 UTC`, in local time."""
    local = _convert_to_local(seconds)
    return f"{local:%a} {local.day} {local:%b %Y, %H:%M %Z}"


def format_time_of_day(seconds: float) -> str:
    """As in `22:00`, in local time."""
    return f"{_convert_to_local(seconds):%H:%M}"


def format_recorded_time(moment: str) -> str:
    """A recorded time as `2026-03-01 22:00`, in local time; empty if it can't be parsed."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


def _convert_to_local(seconds: float) -> "datetime":
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).astimezone()
