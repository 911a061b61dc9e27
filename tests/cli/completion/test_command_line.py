"""What completion offers at each place of a command line, without a shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from stoker.cli.completion.command_line import FILES, FOLDERS, split_line, value_kind, wanted_words
from stoker.cli.main import ALIASES, VERBS, load
from stoker.features.sweeps.control.lifecycle import SAME_FAILS
from stoker.features.sweeps.spec.spec import EARLY_STOP_OPTIONS, METHODS
from stoker.text.command_line import Option
from tests.lab import Lab


def kind(*words: str) -> str:
    return wanted_words(list(words))[0].kind


def offered(lab: Lab, *words: str) -> list[str]:
    """The lines that a completion script gets; the home folder is that of the lab."""
    done = lab.run("__complete", "zsh", "stoker", *words, HOME=str(lab.folder))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def words_of(lines: list[str]) -> list[str]:
    return [line.partition("\t")[0] for line in lines[1:]]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("submit -f X", FILES),
        ("submit -C X", FOLDERS),
        ("submit --cwd=X", FOLDERS),
        ("submit --on X", "backends"),
        ("submit --gpu-ids X", "gpus"),
        ("submit --after X", "jobs"),
        ("submit -T X", "tags"),
        ("submit --on-oom X", "bigger|elsewhere|alone|fail"),
        ("submit python X", "command"),
        ("submit -G 1 -- X", "command"),
        ("submit --priority X", ""),
        ("add X", "command"),
        ("ls --state X", "states"),
        ("ls X", "jobs"),
        ("ls --name X", "names"),
        ("gpus drain X", "gpus"),
        ("backend rm X", "backends"),
        ("backend add lab X", "slurm|ray"),
        ("context use X", "contexts"),
        ("sweep show X", "sweeps"),
        ("sweep --metric X", "metrics"),
        ("results -m X", "metrics"),
        ("results --sort X", "columns"),
        ("results --group X", "columns"),
        ("plot -p X", "params"),
        ("plot X", "results"),
        ("simulate X", FILES),
        ("priority X", ""),
        ("priority 5 X", "jobs"),
        ("--host X", "hosts"),
        ("--json --host=X", "hosts"),
        ("--host box ls X", "jobs"),
        ("submit --profile X", "profiles"),
        ("submit --notify X", "events"),
        ("submit --conda X", "conda"),
        ("notify test X", "places"),
        ("notify add X", ""),
        ("wait --notify=X", "places"),
        ("status X", ""),
        ("no-such-command X", ""),
    ],
)
def test_kind_of_words_follows_from_the_tables(typed: str, expected: str) -> None:
    assert kind(*typed.replace("X", " ").split(" ")[:-1]) == expected


def test_host_before_the_command_is_returned() -> None:
    assert wanted_words(["--host", "box", "ls", ""])[1] == "box"
    assert wanted_words(["--host=box", "--json", "ls", ""])[1] == "box"
    assert wanted_words(["ls", ""])[1] is None


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_command_and_its_options_can_be_completed(verb: str) -> None:
    table = load(verb).VERB
    names = [word for word, _ in wanted_words([verb, "--"])[0].words]
    assert names[-1] == "--debug" and len(names) == len(set(names))
    for option in table.options:
        assert option.names.split()[-1] in names
        for name in option.names.split():
            if option.takes_next and not option.several:
                assert kind(verb, name, "") in (value_kind(option), FILES, FOLDERS)


def test_option_that_was_given_is_not_offered_again_unless_it_repeats() -> None:
    words = dict(wanted_words(["submit", "-G", "1", "-T", "a", "--"])[0].words)
    assert "--gpus" not in words and "--tag" in words


def test_new_options_complete_by_the_name_of_their_value() -> None:
    for value, expected in (("FILE", FILES), ("DIR", FOLDERS), ("JOB", "jobs"), ("TAG", "tags")):
        assert value_kind(Option("--new", "", value)) == expected
    assert value_kind(Option("--new", "", "JOB[:COND]")) == "jobs"
    assert value_kind(Option("--new", "", "HOW", completes="a|b")) == "a|b"
    assert value_kind(Option("--new", "", "N")) == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stoker ", ["stoker", ""]),
        ("stoker ls", ["stoker", "ls"]),
        ("A=1 stoker 'a b", ["stoker", "a b"]),
        ('stoker "a b" c', ["stoker", "a b", "c"]),
        ("stoker a\\", ["stoker", "a "]),
    ],
)
def test_typed_line_is_split_like_a_shell_does(line: str, words: list[str]) -> None:
    assert split_line(line) == words


def test_job_ids_come_with_names_active_and_newest_first(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", "-T", "baseline", input="sleep 1\n" * 60)
    lab.submit("--hold", "-n", "model", "true")
    lines = offered(lab, "show", "")
    assert lines[:3] == ["words", "61\theld model", "60\theld sleep 1"]
    assert len([word for word in words_of(lines) if word.isdigit()]) == 50
    assert {"@", "model", "baseline", "failed", "all"} <= set(words_of(lines))
    assert words_of(offered(lab, "release", "1"))[:2] == ["19", "18"]
    assert words_of(offered(lab, "rerun", "1")) == []  # no job has finished
    assert words_of(offered(lab, "cancel", "7,6"))[:2] == ["7,61", "7,60"]
    assert offered(lab, "show", "mod") == ["words", "model\tjob 61"]
    assert offered(lab, "tag", "61", "+b") == ["words", "+baseline\ttag of 60 jobs"]
    assert offered(lab, "ls", "--tag=b") == ["words", "--tag=baseline\ttag of 60 jobs"]
    assert offered(lab, "submit", "--gpu-ids", "0,") == ["words"]  # no daemon has run


def test_sweeps_metrics_and_parameters_are_offered(lab: Lab) -> None:
    command = "echo stoker: acc={lr} loss=1"
    lab.ok("sweep", "-n", "first", "--metric", "acc:max", command, "lr=1,2")
    lab.wait()
    lab.ok("results", "first")  # saves the summaries
    assert "first\tsweep of 2 trials" in offered(lab, "results", "")
    assert offered(lab, "results", "first", "-m", "") == [
        "words", "acc\tmetric of the sweep", "loss\tmetric",
    ]  # fmt: skip
    assert words_of(offered(lab, "plot", "-m", "acc:")) == ["acc:min", "acc:max"]
    assert words_of(offered(lab, "results", "-s", "-a")) == ["-acc"]
    assert words_of(offered(lab, "plot", "first", "-p", "")) == ["lr"]
    assert "sweep:first" in words_of(offered(lab, "wait", "sw"))
    assert words_of(offered(lab, "gpus", "drain", ""))[0] == "0"


def test_contexts_and_ssh_hosts_are_offered(lab: Lab) -> None:
    lab.ok("context", "add", "box", "--host", "me@gpu-box")
    (lab.folder / ".ssh").mkdir()
    (lab.folder / ".ssh" / "config").write_text("Host lab *.example\n  User me\n")
    assert words_of(offered(lab, "--host", "")) == ["box", "local", "lab"]
    assert offered(lab, "context", "use", "b") == ["words", "box\tssh me@gpu-box"]


def test_profiles_and_places_of_the_settings_are_offered(lab: Lab) -> None:
    (lab.folder / "settings.toml").write_text(
        '[profiles.big]\ngpus = 2\n[notify.places.phone]\nurl = "https://secret.example"\n'
    )
    assert offered(lab, "submit", "--profile", "") == ["words", "big\tprofile"]
    assert words_of(offered(lab, "submit", "--notify", "end,fail")) == ["end,failure"]
    assert offered(lab, "submit", "--notify", "end:p") == ["words", "end:phone\tplace"]
    assert words_of(offered(lab, "notify", "rm", "")) == ["desktop", "phone"]


@pytest.mark.parametrize("damage", ["no folder", "not a database", "bad settings"])
def test_completion_is_silent_and_creates_nothing_when_something_is_wrong(
    new_lab: Callable[..., Lab], damage: str
) -> None:
    lab = new_lab(devices=1)
    if damage == "not a database":
        lab.state_dir.mkdir()
        (lab.state_dir / "queue.db").write_text("this is not a database" * 100)
    if damage == "bad settings":
        (lab.folder / "settings.toml").write_text("grace = [")
    before = sorted(lab.folder.rglob("*"))
    for words in (("show", ""), ("results", "-m", ""), ("gpus", "drain", ""), ("--host", "")):
        done = lab.run("__complete", "bash", " ".join(("stoker", *words)), "")
        assert (done.returncode, done.stderr) == (0, "")
    assert sorted(lab.folder.rglob("*")) == before
    assert lab.daemon_pid() is None


def test_completion_does_not_change_the_queue(lab: Lab) -> None:
    lab.submit("--hold", "true")
    path = lab.state_dir / "queue.db"
    before = path.read_bytes()
    assert words_of(offered(lab, "show", "1")) == ["1"]
    assert path.read_bytes() == before
    assert lab.daemon_pid() is None  # a held job starts none, and completion starts none


def test_names_of_commands_need_no_module_of_a_command() -> None:
    text = "import sys; sys.argv = ['stoker', '__complete', 'fish', 'stoker', 'l'];"
    text += "from stoker.cli.main import main; main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    *lines, modules = done.stdout.splitlines()
    assert words_of(lines) == ["ls", "log", *(name for name in ALIASES if name[0] == "l")]
    assert "stoker.cli.verbs" not in modules and "sqlite3" not in modules


def test_words_of_a_sweep_in_its_table_are_those_of_its_parser() -> None:
    """The table does not import the parser, which would triple the time of a Tab."""
    options = {option.key: option for option in load("sweep").VERB.options}
    assert options["method"].completes.split("|") == list(METHODS)
    assert options["early_stop"].completes.split("|") == list(EARLY_STOP_OPTIONS)
    assert f"(default: {SAME_FAILS}; 0: never)" in options["same_fails"].help
