"""Code of shells that complete `fedsilo`, written out for commands and options that are known beforehand.

Sources: the manuals of bash ("Programmable Completion"), zsh (zshcompsys) and fish (complete).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsilo.cli.command_description import CommandDescription, OptionDescription

PROGRAM = "fedsilo"

_BASH_END = """\
    esac
    [[ -z $files || $current == -* ]] && COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _fedsilo fedsilo
"""

_ZSH_END = """\
    esac
    if [[ -n $files && $PREFIX != -* ]]; then _files; else _describe fedsilo choices; fi
}
compdef _fedsilo fedsilo
"""


def bash_script(commands: Sequence[CommandDescription]) -> str:
    """A function for `complete`; where it finds nothing, bash completes files, as after `-f`."""
    lines = [
        "_fedsilo() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local command="" words="" files=""',
        "    COMPREPLY=()",
        '    ((COMP_CWORD > 1)) && command="${COMP_WORDS[1]}"',
        *_deeper(
            commands, '    ((COMP_CWORD > 2)) && [[ $command == {0} ]] && command="{0} ${{COMP_WORDS[2]}}"'
        ),
        '    case "$command $previous" in',
        *_values(commands, 'COMPREPLY=($(compgen -W "{}" -- "$current")); return', "return"),
        "    esac",
        '    case "$command" in',
    ]
    for command in commands:
        words = [*command.commands, *(name for option in command.options for name in option.names)]
        files = " files=1" if command.files else ""
        lines.append(f'    "{" ".join(command.words)}") words="{" ".join(words)}"{files} ;;')
    return "\n".join(lines) + "\n" + _BASH_END


def zsh_script(commands: Sequence[CommandDescription]) -> str:
    """A function for `compdef`, which shows each word with its summary."""
    lines = [
        "#compdef fedsilo",
        "_fedsilo() {",
        '    local command="" files="" previous="${words[CURRENT-1]}"',
        "    local -a choices",
        '    ((CURRENT > 2)) && command="${words[2]}"',
        *_deeper(commands, '    ((CURRENT > 3)) && [[ $command == {0} ]] && command="{0} ${{words[3]}}"'),
        '    case "$command $previous" in',
        *_values(commands, "choices=({}); _describe value choices; return", "_files; return"),
        "    esac",
        '    case "$command" in',
    ]
    for command in commands:
        named = [*command.commands.items(), *((o.names[-1], o.summary) for o in command.options)]
        choices = " ".join(_quote(f"{name}:{summary}") for name, summary in named)
        files = " files=1" if command.files else ""
        lines.append(f'    "{" ".join(command.words)}") choices=({choices}){files} ;;')
    return "\n".join(lines) + "\n" + _ZSH_END


def fish_script(commands: Sequence[CommandDescription]) -> str:
    """A line of `complete` for each command and option."""
    lines = [f"complete -c {PROGRAM} -f"]
    outer = [command.words[0] for command in commands if len(command.words) == 1 and command.commands]
    for command in commands:
        condition = f"-n {_quote(_fish_condition(command, outer))}"
        for name, summary in command.commands.items():
            lines.append(f"complete -c {PROGRAM} {condition} -a {name} -d {_quote(summary)}")
        for option in command.options:
            names = " ".join(
                f"-{'l' if name[:2] == '--' else 's'} {name.lstrip('-')}" for name in option.names
            )
            lines.append(
                f"complete -c {PROGRAM} {condition} {names}{_fish_value(option)} -d {_quote(option.summary)}"
            )
        if command.files:
            lines.append(f"complete -c {PROGRAM} {condition} -F")
    return "\n".join(lines) + "\n"


def _fish_condition(command: CommandDescription, outer: Sequence[str]) -> str:
    """When fish offers what follows a command, whose name may be that of another one's command too."""
    if not command.words:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.words]
    if command.commands:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(command.commands)}")
    elif len(command.words) == 1:
        seen += [f"not __fish_seen_subcommand_from {word}" for word in outer]
    return "; and ".join(seen)


def _fish_value(option: OptionDescription) -> str:
    if option.values is None:
        return ""
    if option.values:
        return f" -x -a {_quote(' '.join(option.values))}"
    return " -r -F" if option.files else " -x"


def _deeper(commands: Sequence[CommandDescription], line: str) -> Iterator[str]:
    """The line for each command that has commands of its own."""
    return (line.format(command.words[0]) for command in commands if command.words and command.commands)


def _values(commands: Sequence[CommandDescription], known: str, any_value: str) -> Iterator[str]:
    """Branches by which the value of an option is completed."""
    for command in commands:
        for option in command.options:
            if option.values is not None:
                cases = "|".join(f'"{" ".join((*command.words, name))}"' for name in option.names)
                values = known.format(" ".join(option.values)) if option.values else any_value
                yield f"    {cases}) {values} ;;"


def _quote(text: str) -> str:
    """A word in single quotes for zsh and fish alike, of text that may hold them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "’") + "'"
