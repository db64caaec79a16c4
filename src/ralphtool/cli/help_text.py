"""Help that fits into the terminal, including examples, which click would not wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_HYPHEN = "\u2011"  # non-breaking
_NARROW = 60  # columns
_LEAST = 20
_DEEPER = 4  # columns of extra indent for continued lines


class _FittingFormatter(click.HelpFormatter):
    """Breaks lines at spaces only: `--dry-run` stays a word."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:  # click would use 50 columns of a narrower terminal
            import shutil

            width = max(min(shutil.get_terminal_size().columns, max_width or 80) - 2, _LEAST)
        super().__init__(indent_increment, width, max_width)

    def write_text(self, text: str) -> None:
        start = len(self.buffer)
        super().write_text(text.replace("-", _HYPHEN))
        lines = "".join(self.buffer[start:]).replace(_HYPHEN, "-").split("\n")
        self.buffer[start:] = ["\n".join(part for line in lines for part in fit_example(line, self.width))]

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        start = len(self.buffer)
        col_max = 2 if self.width < _NARROW else col_max  # then descriptions are below their options
        super().write_dl([(first, second.replace("-", _HYPHEN)) for first, second in rows], col_max, col_spacing)
        self.buffer[start:] = [part.replace(_HYPHEN, "-") for part in self.buffer[start:]]


class FittingContext(click.Context):
    formatter_class = _FittingFormatter

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An option without its value: click forgets the command, whose usage is printed."""
        if isinstance(error, click.UsageError) and error.ctx is None:
            click.UsageError.__init__(error, error.message, self)
        super().__exit__(kind, error, trace)


class FittingCommand(click.Command):
    """Every command and group is one: its help fits into the terminal."""

    context_class = FittingContext
    _shown_help: click.Option | None = None

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Not click's own, which looks for a translation of its text at every start, and imports `locale` for that."""
        names = self.get_help_option_names(ctx)
        if not names or not self.add_help_option:
            return None
        if self._shown_help is None:
            about = "Show this message and exit."
            self._shown_help = click.Option(
                [*names, "_help"], is_flag=True, is_eager=True, expose_value=False, callback=_show_help, help=about
            )
        return self._shown_help


def _show_help(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()


def fit_example(line: str, width: int) -> list[str]:
    """Wraps an example so that a shell still understands it; its description, a comment, goes below it."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    command, _, about = line.strip().partition("  # ")
    if about:
        import textwrap  # its patterns cost more than most commands

        deeper = f"{indent}{' ' * _DEEPER}# "
        below = textwrap.wrap(about.strip(), width - len(deeper), break_long_words=False, break_on_hyphens=False)
        return [*fit_example(indent + command.rstrip(), width), *(f"{deeper}{part}" for part in below)]
    first, end = _split_command(command, width - len(indent))
    rest = command[len(first) :].lstrip("| ") if end == " |" else command[len(first) :].lstrip()
    return [line] if not end else [f"{indent}{first}{end}", *fit_example(f"{indent}  {rest}", width)]


def _split_command(command: str, width: int) -> tuple[str, str]:
    """Splits a command after a pipe, otherwise at the last fitting space outside quotes."""
    quote, spaces = "", []
    for index, letter in enumerate(command):
        if letter == quote:
            quote = ""
        elif letter in "\"'" and not quote:
            quote = letter
        elif letter == " " and not quote and index <= width - 2:
            spaces.append(index)
    pipes = [index for index in spaces if command.startswith(" | ", index)]
    if pipes:
        return command[: pipes[-1]], " |"
    return (command[: spaces[-1]], " \\") if spaces and spaces[-1] > width // 3 else (command, "")
