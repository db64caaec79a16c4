"""How every message and view writes a duration. No imports, because quick commands use it."""


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
