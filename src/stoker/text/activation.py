"""The environment in which the command of a job runs: conda, venv, uv, modules or a container.

It is stored with the job as words K=V (`JobSettings.activation`), and sent to the runner like this.
Values are data: a word has one `=` that counts, the first.
"""

from __future__ import annotations

from stoker.record import Record

DOCKER, PODMAN, APPTAINER, SINGULARITY = "docker", "podman", "apptainer", "singularity"
ENGINES = (DOCKER, PODMAN, APPTAINER, SINGULARITY)  # in the order in which they are searched
# Options of a job of which only one can be given.
EXCLUSIVE = ("conda", "venv", "uv", "container")


class Activation(Record):
    conda: str = ""  # a prefix, or a name that is searched where the job starts
    venv: str = ""
    uv: bool = False
    modules: tuple[str, ...] = ()  # environment modules, in the order of loading
    container: str = ""  # an image
    engine: str = ""  # of the container; "": the first one where the job starts
    mounts: tuple[str, ...] = ()  # SRC:DST or SRC:DST:ro
    variables: tuple[str, ...] = ()  # names of variables for the container, besides Stoker's own
    options: tuple[str, ...] = ()  # of the engine


NO_ACTIVATION = Activation()
_LISTS = {"module": "modules", "mount": "mounts", "variable": "variables", "option": "options"}


def activation_words(activation: Activation) -> tuple[str, ...]:
    """
    >>> activation_words(Activation(conda="/envs/a", modules=("gcc", "cuda/12")))
    ('module=gcc', 'module=cuda/12', 'conda=/envs/a')
    """
    words = [f"module={name}" for name in activation.modules]
    for key in ("conda", "venv", "container", "engine"):
        value = getattr(activation, key)
        if value:
            words.append(f"{key}={value}")
    if activation.uv:
        words.append("uv=1")
    for key in ("mount", "variable", "option"):
        words += [f"{key}={value}" for value in getattr(activation, _LISTS[key])]
    return tuple(words)


def parse_activation(words: tuple[str, ...]) -> Activation:
    """The inverse of `activation_words`. Words of a later release are ignored."""
    single: dict[str, str] = {}
    lists: dict[str, list[str]] = {key: [] for key in _LISTS}
    for word in words:
        key, _, value = word.partition("=")
        if key in lists:
            lists[key].append(value)
        else:
            single[key] = value
    return Activation(
        conda=single.get("conda", ""),
        venv=single.get("venv", ""),
        uv="uv" in single,
        modules=tuple(lists["module"]),
        container=single.get("container", ""),
        engine=single.get("engine", ""),
        mounts=tuple(lists["mount"]),
        variables=tuple(lists["variable"]),
        options=tuple(lists["option"]),
    )


def shown_activation(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """What users see of an activation: (label, text), for `show` and the web UI.

    >>> shown_activation(("module=gcc", "module=cuda/12", "container=img", "engine=docker"))
    [('modules', 'gcc, cuda/12'), ('container', 'img (docker)')]
    """
    activation = parse_activation(words)
    engine = f" ({activation.engine})" if activation.engine else ""
    rows = [
        ("modules", ", ".join(activation.modules)),
        ("conda", activation.conda),
        ("venv", activation.venv),
        ("uv", "the project's environment" if activation.uv else ""),
        ("container", f"{activation.container}{engine}" if activation.container else ""),
        ("mounts", ", ".join(activation.mounts)),
    ]
    return [(label, text) for label, text in rows if text]


def is_in_container(words: tuple[str, ...]) -> bool:
    return any(word.startswith("container=") for word in words)


def parse_mount(text: str) -> tuple[str, str, bool]:
    """(source, target, whether it is read-only) of SRC, SRC:DST, SRC:DST:ro or SRC:DST:rw.

    >>> parse_mount("/data:/mnt:ro")
    ('/data', '/mnt', True)
    >>> parse_mount("/data")
    ('/data', '/data', False)
    """
    head, _, mode = text.rpartition(":")
    is_read_only = mode == "ro"
    if head and mode in ("ro", "rw"):
        text = head
    # A path with colons has to be at the same place in the container: A:B:A:B.
    middle = len(text) // 2
    if len(text) % 2 and text[middle] == ":" and text[:middle] == text[middle + 1 :]:
        return text[:middle], text[:middle], is_read_only
    source, _, target = text.partition(":")
    return source, target or source, is_read_only
