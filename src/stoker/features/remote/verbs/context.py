"""`stoker context`: names for other machines with Stoker, and the one that commands use."""

from __future__ import annotations

from stoker.cli.output import print_change, print_json, table
from stoker.client.submit.option_values import filled
from stoker.errors import UsageError
from stoker.features.remote import boxes
from stoker.features.remote.boxes import LOCAL, Box
from stoker.text.command_line import Option, Parsed, Verb, check_action

VERB = Verb(
    "context",
    "context [OPTIONS] ls | add NAME | use NAME | rm NAME",
    "Name other machines with Stoker, so that `stoker --host NAME` runs commands there.",
    (
        Option(
            "--host", "what ssh connects to: a host in its config, or user@address", "HOST", filled
        ),
        Option("--dir", "folder on the machine in which commands run (default: ~)", "DIR", filled),
        Option(
            "--stoker", "path of the program there (default: found in the PATH)", "PATH", filled
        ),
        Option(
            "--sync-dir",
            f"folder there for the copies of `submit --sync` (default: {boxes.SYNC_FOLDER})",
            "DIR",
            filled,
        ),
        Option("--ssh-option", "option for ssh, as in `ssh -o`", "KEY=VALUE", filled, many=True),
    ),
    (
        ("stoker context add lab --host me@gpu-box", ""),
        ("stoker --host lab ls", "one command on that machine"),
        ("stoker context use lab", "all further commands on that machine"),
        ("stoker context use local", "back to this machine"),
    ),
    """`stoker --host`, the variables STOKER_HOST and STOKER_CONTEXT, and `context use` choose the
machine, in this order. Inside a job, only --host does: there, `stoker` means the queue of the
job.""",
    words="actions",
)
_ACTIONS = ("ls", "add", "use", "rm")


def run(parsed: Parsed) -> int:
    action, *names = parsed.words or ["ls"]
    check_action("context", action, _ACTIONS)
    if action != "add":
        _refuse_options(action, parsed)
    if action == "ls":
        if names:
            raise UsageError(f"`stoker context ls` takes no name, but got `{names[0]}`")
        return _list(parsed)
    if len(names) != 1:
        raise UsageError(f"give one name: stoker context {action} NAME")
    if action == "add":
        return _add(names[0], parsed)
    if action == "use":
        boxes.use_box(names[0])
        where = "this machine" if names[0] == LOCAL else names[0]
        return print_change(parsed, f"commands now run on {where}", context=names[0])
    boxes.remove_box(names[0])
    return print_change(parsed, f"context {names[0]} removed", removed=names[0])


def _add(name: str, parsed: Parsed) -> int:
    if parsed["host"] is None:
        raise UsageError(
            "`stoker context add` needs `--host`",
            f"example: stoker context add {name} --host user@gpu-box",
        )
    options = tuple(parsed["ssh_option"] or ())
    for option in options:
        if "=" not in option:
            raise UsageError(f"`--ssh-option {option}` is not KEY=VALUE", "example: Port=2222")
    box = Box(
        name=name,
        host=parsed["host"],
        dir=parsed["dir"],
        stoker=parsed["stoker"],
        sync_dir=parsed["sync_dir"] or boxes.SYNC_FOLDER,
        ssh_options=options,
    )
    boxes.save_box(box)
    return print_change(
        parsed, f"context {name} added      try: stoker --host {name} status", context=name
    )


def _refuse_options(action: str, parsed: Parsed) -> None:
    for option in VERB.options:
        if parsed[option.key] is not None:
            raise UsageError(
                f"`{option.names}` is an option of `stoker context add`, not of `{action}`"
            )


def _list(parsed: Parsed) -> int:
    current = boxes.current_name()
    found = [Box(LOCAL, "")] + [box for _, box in sorted(boxes.saved_boxes().items())]
    if parsed["json"]:
        rows = [
            {**box._asdict(), "host": box.host or None, "current": box.name == current}
            for box in found
        ]
        print_json(contexts=rows)
        return 0
    rows_text = [
        (
            "*" if box.name == current else "",
            box.name,
            box.host or "(this machine)",
            "" if box.name == LOCAL else box.dir or "~",
        )
        for box in found
    ]
    print(table(("", "NAME", "HOST", "DIR"), rows_text))
    return 0
