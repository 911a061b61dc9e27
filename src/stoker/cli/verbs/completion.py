"""`stoker completion`: shell completion scripts, made from the tables that parse the options."""

from __future__ import annotations

from stoker.cli.main import ALIASES, VERBS, load
from stoker.core.formats.command_line import Parsed, Verb, all_options
from stoker.errors import UsageError

VERB = Verb(
    "completion",
    "completion bash|zsh|fish",
    "Print a completion script for your shell.",
    (),
    (
        ("stoker completion bash > ~/.local/share/bash-completion/completions/stoker", ""),
        ('stoker completion zsh > "${fpath[1]}/_stoker"', ""),
        ("stoker completion fish > ~/.config/fish/completions/stoker.fish", ""),
    ),
    words="actions",
    has_json=False,
)
_SHELLS = ("bash", "zsh", "fish")
_STATES = "all waiting active final held queued running done failed cancelled lost @"
_ACTIONS = {
    "daemon": "start stop status drain resume run",
    "gpus": "drain restore slots",
    "web": "status stop",
    "sweep": "ls show extend stop resume rerun rm",
    "completion": " ".join(_SHELLS),
}


def run(parsed: Parsed) -> int:
    shells = f"shells: {', '.join(_SHELLS)}"
    if len(parsed.words) != 1:
        raise UsageError("give exactly one shell", shells)
    if parsed.words[0] not in _SHELLS:
        raise UsageError(f"shell `{parsed.words[0]}` is not supported", shells)
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[parsed.words[0]]())
    return 0


def _verbs() -> list[tuple[str, Verb]]:
    names = [*VERBS, *ALIASES]
    return [(name, load(ALIASES.get(name, name)).VERB) for name in names]


def _words(name: str, verb: Verb) -> str:
    return _ACTIONS.get(verb.name, _STATES if verb.words == "jobs" else "")


def _bash() -> str:
    cases = []
    for name, verb in _verbs():
        flags = " ".join(n for option in all_options(verb) for n in option.names.split())
        cases.append(f'    {name}) flags="{flags}"; words="{_words(name, verb)}";;')
    return f"""# bash completion for stoker
_stoker() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" flags="" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join([*VERBS, *ALIASES, "help"])}" -- "$cur"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{chr(10).join(cases)}
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _stoker stoker"""


def _zsh() -> str:
    cases = []
    for name, verb in _verbs():
        flags = " ".join(
            f"'{n}[{option.help.translate(_ZSH)}]'"
            + (f"':{option.value}:'" if option.value else "")
            for option in all_options(verb)
            for n in option.names.split()
        )
        words = _words(name, verb)
        rest = f"'*:word:({words})'" if words else "'*:file:_files'"
        cases.append(f"    {name}) _arguments {flags} {rest};;")
    names = " ".join(f"'{name}:{summary.translate(_ZSH)}'" for name, summary in VERBS.items())
    return f"""#compdef stoker
_stoker() {{
  local -a verbs
  verbs=({names})
  if (( CURRENT == 2 )); then
    _describe command verbs
    return
  fi
  local verb="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$verb" in
{chr(10).join(cases)}
  esac
}}
compdef _stoker stoker"""


# Characters with a special meaning in the option descriptions of zsh.
_ZSH = str.maketrans({"'": "", "[": "(", "]": ")", ":": ",", "`": ""})


def _fish() -> str:
    lines = ["complete -c stoker -f"]
    for name, summary in VERBS.items():
        text = summary.replace("'", "")
        lines.append(f"complete -c stoker -n __fish_use_subcommand -a {name} -d '{text}'")
    for name, verb in _verbs():
        when = f"-n '__fish_seen_subcommand_from {name}'"
        for option in all_options(verb):
            flags = " ".join(
                f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names.split()
            )
            value = " -r" if option.value else ""
            text = option.help.replace("'", "")
            lines.append(f"complete -c stoker {when} {flags}{value} -d '{text}'")
        words = _words(name, verb)
        if words:
            lines.append(f"complete -c stoker {when} -a '{words}'")
        elif verb.words == "files":
            lines.append(f"complete -c stoker {when} -F")
    return "\n".join(lines)
