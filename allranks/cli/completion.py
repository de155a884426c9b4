"""``allranks completion bash``: what a shell reads to complete commands, options, names, inputs, runs and steps."""

from __future__ import annotations

import argparse

HELP = "print what bash, zsh or fish needs to complete the arguments of allranks"

_BASH = r"""_allranks() {
    local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT}
    local typed=${line##*[[:space:]]}
    COMPREPLY=($(allranks completion words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$typed" 2>/dev/null))
    local before=${typed%"$word"}  # bash breaks words at = and :, and takes what follows for the word
    [[ $word == [=:] ]] && before=$typed
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]] && compopt -o nospace
    [[ ${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
    return 0
}
complete -F _allranks allranks"""

_ZSH = r"""#compdef allranks
_allranks() {
    local -a found plain open
    found=("${(@f)$(allranks completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    open=(${(M)found:#*[=/:]})
    plain=(${found:#*[=/:]})
    (( $#open + $#plain )) || { _files; return }
    (( $#open )) && compadd -Q -S '' -a open
    (( $#plain )) && compadd -Q -a plain
}
(( $+functions[compdef] )) && compdef _allranks allranks"""

_FISH = r"""function __allranks_words
    allranks completion words -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c allranks -a '(__allranks_words)'"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_USE = {
    "bash": '# In ~/.bashrc: eval "$(allranks completion bash)"',
    "zsh": '# In ~/.zshrc, after compinit: eval "$(allranks completion zsh)"',
    "fish": "# allranks completion fish > ~/.config/fish/completions/allranks.fish",
}
_WORDS = "words"  # what the scripts ask for: the words that may stand where the last one given does


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=[*SCRIPTS, _WORDS], help="the shell; its script asks for words itself")
    parser.add_argument("typed", metavar="WORD", nargs="*", help="with words: what has been typed")


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell, or the words that complete what was typed."""
    if args.shell != _WORDS:
        first, *rest = SCRIPTS[args.shell].split("\n")
        use = _USE[args.shell]
        print("\n".join([first, use, *rest] if first.startswith("#compdef") else [use, first, *rest]))
        return 0
    from allranks.cli.completed_words import completed_words

    for word in completed_words(args.typed):
        print(word)
    return 0
