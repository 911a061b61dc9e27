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
_FROM_QUEUE = ("jobs", "sweeps")
_ACTIONS = {
    "daemon": "start stop status drain resume run",
    "gpus": "drain restore slots",
    "web": "status stop",
    "sweep": "ls show extend stop resume rerun rm",
    "context": "ls add use rm",
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


def _words(verb: Verb) -> str:
    return _ACTIONS.get(verb.name, _STATES if verb.words == "jobs" else "")


def _queue_words(verb: Verb) -> str:
    """What of the queue completes the arguments of a command: see `cli/completion_words.py`."""
    return "contexts" if verb.name == "context" else verb.words * (verb.words in _FROM_QUEUE)


def _bash() -> str:
    cases = []
    for name, verb in _verbs():
        flags = " ".join(n for option in all_options(verb) for n in option.names.split())
        cases.append(
            f'    {name}) flags="{flags}"; words="{_words(verb)}"; from="{_queue_words(verb)}";;'
        )
    return f"""# bash completion for stoker
_stoker() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" flags="" words="" from="" at=1
  local -a run=("${{COMP_WORDS[0]}}")
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case "${{COMP_WORDS[at]}}" in
    --json|--debug) at=$((at + 1)) ;;
    --host)
      at=$((at + 1))
      [ "${{COMP_WORDS[at]}}" != = ] || at=$((at + 1))
      if [ "$at" -ge "$COMP_CWORD" ]; then
        words="$("${{run[@]}}" --host local box words '{{}}' contexts 2>/dev/null)"
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
      fi
      run+=(--host "${{COMP_WORDS[at]}}")
      at=$((at + 1)) ;;
    *) break ;;
    esac
  done
  if [ "$at" -ge "$COMP_CWORD" ]; then
    [[ "$cur" == -* ]] && words="--host --json --help --version" ||
      words="{" ".join([*VERBS, *ALIASES, "help"])}"
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    return
  fi
  case "${{COMP_WORDS[at]}}" in
{chr(10).join(cases)}
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [ -n "$words$from" ]; then
    [ -z "$from" ] || words="$words $("${{run[@]}}" box words '{{}}' "$from" 2>/dev/null)"
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
            + (f"':{option.value}:'" if option.takes_next else "")
            for option in all_options(verb)
            for n in option.names.split()
        )
        words, queue = _words(verb), _queue_words(verb)
        rest = "'*:file:_files'"
        if words or queue:
            rest = f"'*:word:_stoker_words \"{words}\" {queue}'"
        cases.append(f"    {name}) _arguments {flags} {rest};;")
    names = " ".join(f"'{name}:{summary.translate(_ZSH)}'" for name, summary in VERBS.items())
    return f"""#compdef stoker
_stoker_words() {{
  compadd -- ${{=1}}
  [[ -z "$2" ]] || compadd -- ${{(f)"$(stoker $before box words '{{}}' $2 2>/dev/null)"}}
}}
_stoker() {{
  local -a verbs before
  verbs=({names})
  while (( CURRENT > 2 )) && [[ "$words[2]" == --(host|host=*|json|debug) ]]; do
    if [[ "$words[2]" == --host ]]; then
      if (( CURRENT == 3 )); then
        before=(--host local)
        _stoker_words "" contexts
        return
      fi
      before=(--host "$words[3]")
      shift words
      (( CURRENT-- ))
    elif [[ "$words[2]" == --host=* ]]; then
      before=("$words[2]")
    fi
    shift words
    (( CURRENT-- ))
  done
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


_FISH_FUNCTIONS = """function __stoker_verb
  set -l skip 0
  for word in (commandline -opc)[2..]
    if test $skip = 1
      set skip 0
      continue
    end
    switch $word
      case --host
        set skip 1
      case '-*'
      case '*'
        echo $word
        return 0
    end
  end
  return 1
end
function __stoker_words
  set -l before
  set -l is_host 0
  for word in (commandline -opc)
    test $is_host = 1; and set before --host $word
    set is_host 0
    test "$word" = --host; and set is_host 1
  end
  stoker $before box words '{}' $argv[1] 2>/dev/null
end"""


def _fish() -> str:
    first = "-n 'not __stoker_verb >/dev/null'"
    contexts = "(stoker --host local box words '\\''{}'\\'' contexts 2>/dev/null)"
    lines = [
        _FISH_FUNCTIONS,
        "complete -c stoker -f",
        f"complete -c stoker {first} -l host -x -a '{contexts}' -d 'run on another machine'",
    ]
    for name, summary in VERBS.items():
        text = summary.replace("'", "")
        lines.append(f"complete -c stoker {first} -a {name} -d '{text}'")
    for name, verb in _verbs():
        when = f"-n 'contains -- {name} (__stoker_verb)'"
        for option in all_options(verb):
            flags = " ".join(
                f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names.split()
            )
            value = " -r" if option.takes_next else ""
            text = option.help.replace("'", "")
            lines.append(f"complete -c stoker {when} {flags}{value} -d '{text}'")
        words, queue = _words(verb), _queue_words(verb)
        if words:
            lines.append(f"complete -c stoker {when} -a '{words}'")
        if queue:
            lines.append(f"complete -c stoker {when} -a '(__stoker_words {queue})'")
        if not words and not queue and verb.words == "files":
            lines.append(f"complete -c stoker {when} -F")
    return "\n".join(lines)
