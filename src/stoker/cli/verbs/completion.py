"""`stoker completion`: print the completion script of a shell."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.text.command_line import Parsed, Verb

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
    """Completes commands, options and their values; ids of jobs with their names, names, tags,
states, sweeps, metrics, GPUs, backends, contexts and profiles; files where a file is expected.""",
    words="actions",
    has_json=False,
)
ACTIONS = ("bash", "zsh", "fish")


def run(parsed: Parsed) -> int:
    shells = f"shells: {', '.join(SCRIPTS)}"
    if len(parsed.words) != 1:
        raise UsageError("give exactly one shell", shells)
    if parsed.words[0] not in SCRIPTS:
        raise UsageError(f"shell `{parsed.words[0]}` is not supported", shells)
    print(SCRIPTS[parsed.words[0]])
    return 0


BASH = r"""# bash completion for stoker
_stoker() {
  local line kind="" more="" cur="${COMP_WORDS[COMP_CWORD]}" run="${COMP_WORDS[0]}" at
  COMPREPLY=()
  type "$run" >/dev/null 2>&1 || run=stoker
  while IFS= read -r line; do
    if [ -z "$kind" ]; then
      kind="${line%% *}" more="${line#"$kind"}"
    else
      COMPREPLY+=("$line")
    fi
  done < <("$run" __complete bash "${COMP_LINE:0:COMP_POINT}" "$cur" 2>/dev/null </dev/null)
  case "$kind$more" in
  command*)
    # In COMP_WORDS, = and : are words of their own, so the command may be further to the right.
    at=$((more - 1)) line="${COMPREPLY[0]}" COMPREPLY=()
    while [ "$at" -lt "$COMP_CWORD" ] && [ "${COMP_WORDS[at]}" != "$line" ]; do
      at=$((at + 1))
    done
    if [ "$at" -lt "$COMP_CWORD" ] && declare -F _comp_command_offset >/dev/null; then
      _comp_command_offset "$at"
    elif [ "$at" -lt "$COMP_CWORD" ] && declare -F _command_offset >/dev/null; then
      _command_offset "$at"
    else
      compopt -o filenames 2>/dev/null
      [ "$at" -lt "$COMP_CWORD" ] || mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")
    fi ;;
  *folders)
    [ "$cur" != = ] || cur=""
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
  *files)
    [ "$cur" != = ] || cur=""
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
  esac
}
complete -o nosort -F _stoker stoker 2>/dev/null || complete -F _stoker stoker"""

ZSH = r"""#compdef stoker
_stoker() {
  local -a lines values shown kind
  local line value text
  lines=("${(@f)$("${(Q)words[1]}" __complete zsh "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" \
    2>/dev/null </dev/null)}")
  kind=(${=lines[1]})
  if [[ "$kind[1]" == command ]]; then
    (( CURRENT -= kind[2] - 1 ))
    shift $(( kind[2] - 1 )) words
    _normal
    return
  fi
  for line in "${(@)lines[2,-1]}"; do
    value="${line%%$'\t'*}" text="${line#"$value"}"
    values+=("$value")
    shown+=("$value${text:+  -- ${text#$'\t'}}")
  done
  if (( $#values )); then
    if [[ "${(j::)shown}" == "${(j::)values}" ]]; then
      compadd -V stoker -a values
    else
      compadd -V stoker -l -d shown -a values
    fi
  fi
  [[ "$kind[-1]" == (files|folders) && "$PREFIX" == --*=* ]] && compset -P '*='
  case "$kind[-1]" in
  files) _files ;;
  folders) _files -/ ;;
  esac
}
if [[ "$funcstack[1]" == _stoker ]]; then
  _stoker "$@"
else
  compdef _stoker stoker
fi"""

FISH = r"""function __stoker_complete
  set -l tokens (commandline -opc)
  set -l current (commandline -ct)
  set -l lines ($tokens[1] __complete fish $tokens "$current" 2>/dev/null </dev/null)
  set -l kind (string split ' ' -- $lines[1])
  set -l before (string match -r -- '^--[^=]*=' "$current")
  set -l rest (string replace -r -- '^--[^=]*=' '' "$current")
  if test "$kind[1]" = command
    set -l words "$current"
    if test $kind[2] -le (count $tokens)
      set words (string escape -- $tokens[$kind[2]..-1]) "$current"
    end
    complete -C (string join ' ' -- $words)
    return
  end
  set -e lines[1]
  printf '%s\n' $lines
  switch "$kind[-1]"
    case files
      printf '%s\n' "$before"(__fish_complete_path "$rest")
    case folders
      printf '%s\n' "$before"(__fish_complete_directories "$rest")
  end
end
complete -c stoker -e
complete -c stoker -f -k -a '(__stoker_complete)'"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
