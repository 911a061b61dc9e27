"""`results`, `plot` and `pull`: results of jobs on a box arrive on this machine."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from stoker.errors import Conflict
from stoker.features.remote.pull_stream import save
from tests.cli.helpers import refused
from tests.features.remote.ssh_box import SshBox
from tests.lab import Lab

SCRIPT = (
    'out="$STOKER_OUTPUT_DIR"; echo "a log {a}"; mkdir -p "$out/deep"; echo model > "$out/deep/m";'
    ' ln -s deep/m "$out/latest"; echo "{{\\"loss\\": 0.5}}" >> "$STOKER_METRICS"'
)


def sweep(lab: Lab) -> str:
    """A finished sweep with two trials; its name."""
    lab.ok("sweep", "-n", "trial-run", SCRIPT, "a=1,2")
    assert lab.wait() == 0
    return "trial-run"


def test_exported_table_is_written_here(box: SshBox) -> None:
    name = sweep(box.there)
    assert "0.5" in box.ok("results", name)
    done = box.run("results", name, "-o", "table.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wrote 2 rows to table.csv\n"
    table = (box.here.folder / "table.csv").read_bytes().decode()
    assert table == box.there.ok("results", name, "--csv")
    assert not (box.home / "table.csv").exists()
    box.ok("results", name, "--parquet", "table.parquet")
    assert (box.here.folder / "table.parquet").read_bytes()[:4] == b"PAR1"


def test_plot_is_written_here(box: SshBox) -> None:
    name = sweep(box.there)
    out = box.ok("plot", name, "-o", "curves.svg", "--json")
    assert json.loads(out) == {"schema": 2, "file": "curves.svg"}
    assert "<svg" in (box.here.folder / "curves.svg").read_text()


def test_failed_export_leaves_no_file(box: SshBox) -> None:
    done = box.run("results", "nothing", "-o", "table.csv", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "not_found"
    assert [name for name in os.listdir(box.here.folder) if "table" in name] == []
    refused(box.run("results", "-o", "no/folder.csv"), 2,
            "cannot write `no/folder.csv`: No such file or directory")  # fmt: skip


@pytest.fixture(params=["remote", "local"])
def pull(request: pytest.FixtureRequest, box: SshBox) -> Lab:
    """A lab whose `pull` copies the jobs of the box: through ssh, or on the box itself."""
    if request.param == "local":
        return box.there
    box.here.env["STOKER_HOST"] = "box"
    return box.here


def test_pull_copies_log_metrics_and_output(box: SshBox, pull: Lab) -> None:
    sweep(box.there)
    assert pull.ok("pull", "--sweep", "trial-run") == "10 files copied to stoker-jobs\n"
    folder = pull.folder / "stoker-jobs" / "2"
    assert {path.name for path in folder.iterdir()} == {
        "job.json", "log.txt", "metrics.jsonl", "output"}  # fmt: skip
    assert (folder / "log.txt").read_text() == "a log 2\n"
    assert json.loads((folder / "metrics.jsonl").read_text())["loss"] == 0.5
    assert (folder / "output" / "deep" / "m").read_text() == "model\n"
    assert os.readlink(folder / "output" / "latest") == "deep/m"
    assert json.loads((folder / "job.json").read_text())["name"] == "trial-run/2"


def test_pull_copies_every_attempt_and_chosen_output_files(box: SshBox, pull: Lab) -> None:
    job = box.there.submit("--retries", "1", "echo $STOKER_ATTEMPT; false")
    chosen = box.there.submit("-o", "out.txt", "-e", "err.txt", "echo o; echo e >&2")
    box.there.wait()
    pull.ok("pull", f"{job}-{chosen}", "-o", "here")
    folder = pull.folder / "here"
    assert (folder / str(job) / "log.txt").read_text() == "1\n"
    assert (folder / str(job) / "log.2.txt").read_text() == "2\n"
    assert (folder / str(chosen) / "stdout").read_text() == "o\n"
    assert (folder / str(chosen) / "stderr").read_text() == "e\n"


def test_pull_copies_only_what_has_changed(box: SshBox, pull: Lab) -> None:
    sweep(box.there)
    pull.ok("pull", "all")
    (pull.folder / "stoker-jobs" / "1" / "log.txt").unlink()
    again = json.loads(pull.ok("pull", "all", "--json"))
    # Always the records of jobs and the links, and here a log.
    assert (again["files"], again["copied"]) == (10, 5)
    assert (pull.folder / "stoker-jobs" / "1" / "log.txt").read_text() == "a log 1\n"


def test_pull_does_not_copy_what_a_link_of_a_job_points_to_as_a_link(
    box: SshBox, pull: Lab
) -> None:
    outside = box.folder / "dataset"
    outside.write_text("data\n")
    job = box.there.submit(f'mkdir -p "$STOKER_OUTPUT_DIR"; ln -s {outside} "$STOKER_OUTPUT_DIR/d"')
    box.there.wait(job)
    pull.ok("pull")
    copy = pull.folder / "stoker-jobs" / str(job) / "output" / "d"
    assert (copy.is_symlink(), copy.read_text()) == (False, "data\n")


def test_pull_of_unknown_jobs_and_into_a_file_is_refused(box: SshBox, pull: Lab) -> None:
    refused(pull.run("pull", "7"), 1, "there is no job 7", "`stoker ls` shows the jobs")
    assert json.loads(pull.run("pull", "7", "--json").stdout)["error"]["code"] == "not_found"
    box.there.submit("--hold", "true")
    (pull.folder / "file").touch()
    refused(pull.run("pull", "-o", "file"), 2, "`file` is not a folder")


@pytest.mark.parametrize(
    ("name", "target"),
    [("../x", None), ("/tmp/x", None), ("7/output/a", "/etc"), ("7/output/a", "../../.."),
     ("7/output/a", "b/../../.."), ("7/output/link/x", None)],
)  # fmt: skip
def test_pull_writes_nothing_outside_of_its_folder(
    tmp_path: Path, name: str, target: str | None
) -> None:
    """Also if the other machine sends such files on purpose."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        member = tarfile.TarInfo(name)
        if target is not None:
            member.type, member.linkname = tarfile.SYMTYPE, target
        archive.addfile(member)
    stream.seek(0)
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    (folder / "7" / "output").mkdir(parents=True)
    (folder / "7" / "output" / "link").symlink_to(outside)
    with pytest.raises(Conflict):
        save(stream, str(folder))
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "outside"]


def test_pull_continues_after_a_cut(box: SshBox) -> None:
    job = box.there.submit(
        'mkdir -p "$STOKER_OUTPUT_DIR"; for n in 1 2 3 4 5 6 7 8; do '
        'head -c 4000000 /dev/urandom > "$STOKER_OUTPUT_DIR/$n"; done'
    )
    assert box.there.wait(job) == 0
    process = box.popen("pull", str(job))
    folder = box.here.folder / "stoker-jobs" / str(job) / "output"
    box.here.wait_until(folder.exists)
    box.cut()
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.endswith("copied to stoker-jobs\n")
    source = next(Path(box.there.state_dir).glob(f"jobs/*/{job}"))
    for number in range(1, 9):
        assert (folder / str(number)).read_bytes() == (source / str(number)).read_bytes()
    assert len(list(folder.iterdir())) == 8
