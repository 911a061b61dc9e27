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
    from stoker.cli.completion.scripts import SCRIPTS

    shells = f"shells: {', '.join(SCRIPTS)}"
    if len(parsed.words) != 1:
        raise UsageError("give exactly one shell", shells)
    if parsed.words[0] not in SCRIPTS:
        raise UsageError(f"shell `{parsed.words[0]}` is not supported", shells)
    print(SCRIPTS[parsed.words[0]])
    return 0
