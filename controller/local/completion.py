"""What shells complete behind `kwob`, as scripts for bash, zsh and fish made from the parsers. Pure.

A page is what may follow a command's words: subcommands, flags, and the values of flags that have a fixed choice.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What may follow: subcommands and flags with their summaries, and the choices of flags that have some."""

    commands: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, str]:
        """All that may follow."""
        return {**self.commands, **self.flags}


#: By the words of a command behind `kwob`; "" is kwob itself.
Pages = dict[str, Page]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's subcommands, by name."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: sub for action in actions for name, sub in action.choices.items()}


def pages_of(path: str, *makers: Callable[[], argparse.ArgumentParser]) -> Pages:
    """The pages of a command and of its subcommands, of what several parsers take together."""
    pages: Pages = {path: Page()}
    for maker in makers:
        for at, page in _pages(path, maker()).items():
            before = pages.get(at, Page())
            pages[at] = Page(
                commands={**before.commands, **page.commands},
                flags={**before.flags, **page.flags},
                choices={**before.choices, **page.choices},
            )
    return pages


def _pages(path: str, parser: argparse.ArgumentParser) -> Pages:
    commands: dict[str, str] = {}
    flags: dict[str, str] = {}
    choices: dict[str, Sequence[str]] = {}
    pages: Pages = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands |= {name: summaries.get(name, "") for name in action.choices}
        elif not action.option_strings and action.choices is not None:
            commands |= {str(choice): "" for choice in action.choices}
        for flag in action.option_strings:
            if flag.startswith("--"):
                flags[flag] = action.help or ""
                if action.choices is not None:
                    choices[flag] = [str(choice) for choice in action.choices]
    for name, sub in subcommands(parser).items():
        pages |= _pages(f"{path} {name}", sub)
    return {path: Page(commands=commands, flags=flags, choices=choices)} | pages


def script(shell: str, pages: Pages) -> str:
    """The script of a shell: `bash`, `zsh` or `fish`."""
    return SHELLS[shell](pages)


def _steps(pages: Pages) -> list[str]:
    """`<page so far> <word>` of each word that leads to another page."""
    return [" ".join(path.rpartition(" ")[::2]) if " " in path else f" {path}" for path in pages if path]


def _bash(pages: Pages) -> str:
    lines = [
        '# kwob for bash: eval "$(kwob completion bash)"',
        "_kwob() {",
        '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at="" words="" word',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$at $word" in',
        f'            {"|".join(map(shlex.quote, _steps(pages)))}) at="${{at:+$at }}$word" ;;',
        "        esac",
        "    done",
        '    case "$at" in',
        *(f"        {shlex.quote(path)}) words={shlex.quote(' '.join(page.words))} ;;" for path, page in pages.items()),
        "    esac",
        '    case "$at $prev" in',
        *(
            f"        {shlex.quote(f'{path} {flag}')}) words={shlex.quote(' '.join(values))} ;;"
            for path, page in pages.items()
            for flag, values in page.choices.items()
        ),
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _kwob kwob",
    ]
    return "\n".join(lines) + "\n"


def _zsh(pages: Pages) -> str:
    lines = [
        "#compdef kwob",
        '# kwob for zsh: eval "$(kwob completion zsh)"',
        "_kwob() {",
        '    local at="" word',
        "    local -a choices",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        '        case "$at $word" in',
        f'            {"|".join(map(_quoted, _steps(pages)))}) at="${{at:+$at }}$word" ;;',
        "        esac",
        "    done",
        '    case "$at" in',
    ]
    for path, page in pages.items():
        described = " ".join(_quoted(f"{word}:{_short(text)}") for word, text in page.words.items())
        lines.append(f"        {_quoted(path)}) choices=({described}) ;;")
    lines += ["    esac", '    case "$at $words[CURRENT-1]" in']
    for path, page in pages.items():
        for flag, values in page.choices.items():
            lines.append(f"        {_quoted(f'{path} {flag}')}) choices=({' '.join(map(_quoted, values))}) ;;")
    lines += ["    esac", "    _describe kwob choices || _files", "}", "compdef _kwob kwob"]
    return "\n".join(lines) + "\n"


def _fish(pages: Pages) -> str:
    lines = [
        "# kwob for fish: kwob completion fish | source",
        "function __kwob_at",
        "    set -l at ''",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$at $word"',
        f"            case {' '.join(map(_quoted, _steps(pages)))}",
        '                set at (string trim -- "$at $word")',
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
    ]
    for path, page in pages.items():
        there = _quoted(f'__kwob_at "{path}"')
        lines += [
            f"complete -c kwob -n {there} -f -a {word} -d {_quoted(_short(text))}"
            for word, text in page.commands.items()
        ]
        for flag, text in page.flags.items():
            values = page.choices.get(flag)
            choice = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(f"complete -c kwob -n {there} -l {flag.removeprefix('--')}{choice} -d {_quoted(_short(text))}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Quoted in any case, for shells that read more into bare words than Python knows."""
    return "'" + text.replace("'", "'\\''") + "'"


def _short(text: str) -> str:
    """A summary of a line: its first sentence, without what has a meaning in zsh's lists."""
    return " ".join(text.split()).partition(". ")[0].partition(" (")[0].replace(":", " -")[:80]


SHELLS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
