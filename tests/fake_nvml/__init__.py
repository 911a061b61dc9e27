"""A fake NVIDIA driver: a libnvidia-ml.so.1 that the unmodified nvidia-ml-py loads.

fake = FakeNvml(tmp_path / "nvml", build(tmp_path))
h100, a100 = fake.set_gpus("NVIDIA H100", "NVIDIA A100")
lab = Lab(tmp_path, **fake.env())
fake.lose(a100)
lab.submit('echo "0 5000000000" > "$FAKE_NVML_PROCS/$$"; exec sleep 60')   # now it is on GPU 0

The next call of the library sees every change. CUDA itself is not simulated.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from pathlib import Path

from tests.compiler import compile_c

_SOURCE = Path(__file__).with_name("nvml.c")
_LIBRARY = "libnvidia-ml.so.1"

MIB = 1 << 20
GIB = 1 << 30

# Error codes that nvmlInit and other calls may return.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIBRARY_MISMATCH = 18
UNKNOWN = 999


def build(folder: Path) -> Path:
    """Return the compiled library, in a folder named after the hash of its source; compiled once.

    Skips the test if there is no compiler; fails in CI.
    """
    source = _SOURCE.read_bytes()
    library = folder / f"fake-nvml-{hashlib.sha256(source).hexdigest()[:16]}" / _LIBRARY
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_name(f"{_LIBRARY}.{os.getpid()}")
        words = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
        compile_c(_SOURCE, made, *words)
        made.rename(library)
    return library


@dataclass
class _Unit:
    """A GPU, or a MIG slice of one; -1: not reported."""

    uuid: str
    model: str
    total: int
    pci: str = ""
    minor: int = 0
    reserved: int = 600 * MIB
    used: int = 0
    util: int = 0
    power: int = 70_000  # milliwatts
    power_limit: int = 700_000
    temp: int = 30
    energy: int = 0  # millijoules
    ecc: int = 0
    mig: int = 0
    lost: int = 0
    of: str = ""
    instance: int = 0
    numa: int = -1
    cpus: str = ""  # near it: 0-3,8
    links: str = ""  # minor numbers of the GPUs that NVLink connects with it: 1,2

    def line(self) -> str:
        words = [
            f"{field.name}={'none' if value == -1 else value}"
            for field in fields(self)
            if field.name not in ("uuid", "model") and (value := getattr(self, field.name)) != ""
        ]
        return " ".join(["slice" if self.of else "gpu", self.uuid, *words, f"model={self.model}"])


class FakeNvml:
    """The driver of one host. GPUs and slices are named by their UUIDs."""

    def __init__(self, folder: Path, library: Path, count_calls: bool = False) -> None:
        self.folder = folder
        self.claims = folder / "claims"
        self.claims.mkdir(parents=True)
        self._state = folder / "state"
        self._calls = folder / "calls" if count_calls else None
        self._library = library
        self._installed = folder / "lib" / _LIBRARY
        self._installed.parent.mkdir()
        self._units: list[_Unit] = []
        self._processes: dict[int, list[str]] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._hangs: list[str] = []
        self._xids: list[str] = []
        self._init = 0
        self.install()
        self._save()

    def env(self) -> dict[str, str]:
        """The environment of processes that use this driver instead of the one of the host."""
        paths = [str(self._installed.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        env = {
            "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
            "FAKE_NVML_STATE": str(self._state),
            "FAKE_NVML_PROCS": str(self.claims),
        }
        return env if self._calls is None else {**env, "FAKE_NVML_CALLS": str(self._calls)}

    # -- the library ---------------------------------------------------------------------------

    def install(self) -> None:
        new = self._installed.with_suffix(".new")
        new.symlink_to(self._library)
        new.replace(self._installed)

    def uninstall(self) -> None:
        """Make the library unloadable: the loader fails on a file that is not a library."""
        self._installed.unlink()
        self._installed.touch()

    def fail_init(self, code: int) -> None:
        """0 makes it work again."""
        self._init = code
        self._save()

    def fail(self, function: str, code: int, gpu: str = "") -> None:
        """Let calls of this C function (`*`: all) return an error; 0 makes them work again."""
        self._failures[function, gpu] = code
        self._save()

    def hang(self, function: str = "*") -> None:
        """Let calls of this C function hang."""
        self._hangs.append(function)
        self._save()

    def unhang(self) -> None:
        self._hangs.clear()
        self._save()

    def calls(self, function: str) -> int:
        """Return the number of calls of all processes (needs count_calls)."""
        assert self._calls is not None
        try:
            return self._calls.read_text().split().count(function)
        except FileNotFoundError:
            return 0

    def loads(self) -> int:
        """Return how many processes have loaded the library so far."""
        return self.calls("load")

    # -- GPUs ----------------------------------------------------------------------------------

    def set_gpus(self, *models: str, total: int = 80 * GIB, **values: int) -> list[str]:
        """Replace all GPUs, one for each model; returns their UUIDs in PCI order."""
        self._units = [
            _Unit(f"GPU-{number:08x}-0000-4000-8000-000000000000", model, total, minor=number)
            for number, model in enumerate(models)
        ]
        for number, unit in enumerate(self._units):
            unit.pci = f"0000:{0x1A + 0x11 * number:02x}:00.0"
        uuids = [unit.uuid for unit in self._units]
        for uuid in uuids:
            self.change(uuid, **values)
        self._save()
        return uuids

    def slices(self, gpu: str, *models: str, total: int = 10 * GIB) -> list[str]:
        """Enable MIG and create new slices; returns their UUIDs."""
        self._units = [unit for unit in self._units if unit.of != gpu]
        made = [
            _Unit(f"MIG-{gpu[4:12]}-{number:04x}-5000-8000-000000000000", model, total, of=gpu)
            for number, model in enumerate(models)
        ]
        for number, unit in enumerate(made):
            unit.instance = number + 7
        self._units += made
        self.change(gpu, mig=1)
        return [unit.uuid for unit in made]

    def change(self, gpu: str, **values: int | str) -> None:
        """Set fields of a GPU or slice: used, util, power (mW), temp, energy (mJ), ecc, pci, ..."""
        unit = self._unit(gpu)
        for name, value in values.items():
            assert hasattr(unit, name), name
            setattr(unit, name, value)
        self._save()

    def connect(self, *gpus: str) -> None:
        """Connect each of these GPUs with each other by NVLink."""
        minors = {gpu: self._unit(gpu).minor for gpu in gpus}
        for gpu in gpus:
            others = [str(minor) for other, minor in minors.items() if other != gpu]
            self.change(gpu, links=",".join(others))

    def reverse(self) -> None:
        """Reverse the order in which the driver lists GPUs; PCI addresses stay."""
        self._units.reverse()
        self._save()

    def remove(self, gpu: str) -> None:
        self._units = [unit for unit in self._units if gpu not in (unit.uuid, unit.of)]
        self._save()

    def lose(self, gpu: str) -> None:
        self.change(gpu, lost=1)

    def find(self, gpu: str) -> None:
        """Bring a lost GPU back."""
        self.change(gpu, lost=0)

    def xid(self, gpu: str, code: int, instance: int | None = None) -> None:
        """Report an error to all registered listeners."""
        words = [len(self._xids) + 1, gpu, code, *([] if instance is None else [instance])]
        self._xids.append(" ".join(map(str, words)))
        self._save()

    # -- processes -----------------------------------------------------------------------------

    def add_process(
        self,
        gpu: str,
        pid: int,
        memory: int | None,
        kind: str = "compute",
        sticky: bool = False,
    ) -> None:
        """`kind` is compute, graphics or both; a sticky process stays listed after it exits."""
        life = "sticky" if sticky else "while_alive"
        text = f"{gpu} {pid} {'hidden' if memory is None else memory} {kind} {life}"
        self._processes.setdefault(pid, []).append(text)
        self._save()

    def remove_process(self, pid: int) -> None:
        self._processes.pop(pid, None)
        self._save()

    def claim(self, pid: int, gpu: str | int, memory: int) -> None:
        """Allocate memory for a process, as a job does by writing to $FAKE_NVML_PROCS."""
        with open(self.claims / str(pid), "a", encoding="ascii") as file:
            file.write(f"{gpu} {memory}\n")

    # -- the state file ------------------------------------------------------------------------

    def _unit(self, uuid: str) -> _Unit:
        return next(unit for unit in self._units if unit.uuid == uuid)

    def _save(self) -> None:
        lines = [f"init {self._init}"]
        lines += [
            f"fail {function} {code} {gpu}".rstrip()
            for (function, gpu), code in self._failures.items()
            if code
        ]
        lines += [f"hang {function}" for function in self._hangs]
        lines += [unit.line() for unit in self._units]
        lines += [f"process {text}" for texts in self._processes.values() for text in texts]
        lines += [f"xid {text}" for text in self._xids]
        new = self._state.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self._state)
