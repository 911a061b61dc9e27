"""Turn an order with `--warm` into the request to a fork server."""

from __future__ import annotations

import os

from stoker.engine.model import Context
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.spawn import Environment
from stoker.features.warm.fork_servers import WarmRequest
from stoker.text.commands.python_command import parse_python, quoted_words

_POSIX_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SHELL_SETUP = (b"BASH_ENV", b"BASH_FUNC_", b"ENV")  # can redefine a command name


def warm_request(order: Order, context: Context, env: Environment, tag: int) -> WarmRequest | str:
    """The request for an order, or why it needs a cold start."""
    argv = order.argv
    if order.shell:
        words = None
        if os.path.basename(context.shell) in _POSIX_SHELLS:
            words = quoted_words(order.argv[0])
        if words is None or any(key.startswith(_SHELL_SETUP) for key in env):
            return "its command needs a shell"
        argv = words
    command = parse_python(argv)
    if isinstance(command, str):
        return command
    if order.settings.activation:
        from stoker.features.environments.activate import warm_environment

        found = warm_environment(order, env)
        if isinstance(found, str):
            return found
        env, folder = found
        if "/" not in command.python:
            command = command._replace(python=os.path.join(folder, command.python))
    named = split_modules(order.settings.warm or "")
    return WarmRequest(
        attempt=order.attempt,
        command=command,
        argv=argv,
        cwd=context.cwd,
        umask=context.umask,
        env=env,
        tag=tag,
        cpus=order.cpus,
        modules=named or split_modules(order.modules),
        is_named=bool(named),
        time_limit=order.time_limit,
    )


def split_modules(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
