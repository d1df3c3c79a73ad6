"""`rrjax completion`: a script with which a shell completes commands, flags and names.

The script holds all words, so that a shell need not start Python and JAX at every Tab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

import rrjax


@dataclasses.dataclass(frozen=True)
class Place:
    """What may follow a command."""

    command: str
    """As it is typed: `rrjax test fit`."""
    words: list[str]
    """Commands, or what an argument may be; empty where that is a file."""
    flags: dict[str, str]
    """Each flag, and its help in one line."""
    values: dict[str, list[str]]
    """What flags with names as their values take."""
    switches: list[str]
    """The flags without a value."""


def completion(
    context: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script for a shell, which then completes commands, flags and names when Tab is pressed.

    rrjax completion bash > ~/.rrjax.bash; echo "source ~/.rrjax.bash" >> ~/.bashrc

    rrjax completion zsh > ~/.rrjax.zsh; echo "source ~/.rrjax.zsh" >> ~/.zshrc

    rrjax completion fish > ~/.config/fish/completions/rrjax.fish

    It takes effect in new terminals. Write the script again after each update of rrjax.
    """
    root = context.find_root()
    places = list(_places(root.command, "rrjax", root))
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    print(
        f"# Completion of rrjax {rrjax.__version__} in {shell}, by `rrjax completion {shell}`.\n{write(places)}", end=""
    )


def _places(command: Any, typed: str, context: Any) -> Iterator[Place]:
    """A command and those below it."""
    below = {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}
    place = Place(typed, list(below), {}, {}, [])
    for parameter in command.get_params(context):
        names = [item.value for item in parameter.shell_complete(context, "") if item.type == "plain"]
        if parameter.param_type_name == "argument":
            place.words.extend(names)
            continue
        if parameter.hidden:
            continue
        for flag in (*parameter.opts, *parameter.secondary_opts):
            place.flags[flag] = (parameter.help or "").partition(". ")[0].partition("\n")[0].rstrip(".")
            if parameter.is_flag:
                place.switches.append(flag)
            elif names:
                place.values[flag] = names
    yield place
    for name, each in below.items():
        yield from _places(each, f"{typed} {name}", type(context)(each, info_name=name, parent=context))


_WORDS = """
# Prints what may stand at a place: its first characters, then the words before it.
_rrjax_words() {{
    local word="$1" at=rrjax before= each
    shift
    for each in "$@"; do
        case "$at $each" in
            {commands}) at="$at $each" ;;
        esac
        [ "$each" = "=" ] || before="$each"
    done
    case "$before" in
        {switches}) ;;
        -*)
            case "$at $before" in
{values}
            esac
            return ;;
    esac
    case "$word" in
        -*)
            case "$at" in
{flags}
            esac ;;
        *)
            case "$at" in
{words}
            esac ;;
    esac
}}
"""


def _words(places: list[Place]) -> str:
    """The function that finds words, in what bash and zsh have in common."""

    def cases(found: dict[str, list[str]]) -> str:
        merged: dict[str, list[str]] = {}
        for pattern, words in found.items():
            merged.setdefault(" ".join(words), []).append(f'"{pattern}"')
        return "\n".join(f'{" " * 16}{" | ".join(patterns)}) echo "{words}" ;;' for words, patterns in merged.items())

    return _WORDS.format(
        commands=" | ".join(f'"{place.command}"' for place in places[1:]),
        switches=" | ".join(sorted({switch for place in places for switch in place.switches})),
        values=cases({f"{place.command} {flag}": words for place in places for flag, words in place.values.items()}),
        flags=cases({place.command: list(place.flags) for place in places}),
        words=cases({place.command: place.words for place in places if place.words}),
    )


def _bash(places: list[Place]) -> str:
    return (
        _words(places)
        + """
_rrjax() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    [ "$word" = "=" ] && word=
    COMPREPLY=($(compgen -W "$(_rrjax_words "$word" "${COMP_WORDS[@]:1:COMP_CWORD-1}")" -- "$word"))
}

complete -o default -F _rrjax rrjax
"""
    )


def _zsh(places: list[Place]) -> str:
    return (
        _words(places)
        + """
_rrjax() {
    local -a found
    found=(${=$(_rrjax_words "${words[CURRENT]}" "${(@)words[2,CURRENT-1]}")})
    if (( $#found )); then compadd -a found; else _files; fi
}

(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _rrjax rrjax
"""
    )


def _fish(places: list[Place]) -> str:
    lines = [""]
    for place in places:
        below = place.command.split()[1:]
        others = [other.command.split()[-1] for other in places if other.command.rpartition(" ")[0] == place.command]
        here = [f"__fish_seen_subcommand_from {name}" for name in below]
        here += [f"not __fish_seen_subcommand_from {' '.join(others)}"] * bool(others)
        complete = f"complete -c rrjax -n {_quoted('; and '.join(here))}"
        if place.words:
            lines.append(f"{complete} {'-f ' * bool(others)}-a {_quoted(' '.join(place.words))}")
        for flag, text in place.flags.items():
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = f" -x -a {_quoted(' '.join(place.values[flag]))}" if flag in place.values else " -r"
            lines.append(f"{complete} {kind}{'' if flag in place.switches else value} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """In single quotes, as fish has them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
