"""The process that talks to Ray for a driver; the only one that imports Ray.

Ray prints to stderr, installs signal handlers, and ends a process that has lost its cluster. So the
driver has a child for it: requests and answers are pickled tuples on pipes, and the end of the
driver closes the pipe.

    python -m stoker.features.backends.ray.client_process ADDRESS
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from typing import IO, Any

NAMESPACE = "stoker"
# The outcome of a call to an actor.
OK, DEAD, LATE, ERROR = "ok", "dead", "late", "error"
_ACCELERATOR = "accelerator_type:"  # before the model of the GPUs in the resources of a node


def send(file: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=5)
    file.write(struct.pack("!Q", len(data)))
    file.write(data)
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """The next value. Raises EOFError if the other process has ended."""
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    data = file.read(struct.unpack("!Q", head)[0])
    return pickle.loads(data)


class Client:
    """What the driver can request. All values are plain data."""

    def __init__(self, address: str) -> None:
        import logging

        import ray

        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
        self._ray: Any = ray
        self._handles: dict[str, Any] = {}  # by the id of the actor

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that Ray knows, with the GPUs that are free on them."""
        from ray._private import state

        free = dict(state.available_resources_per_node())  # type: ignore[no-untyped-call]
        found = []
        for node in self._ray.nodes():
            resources = node["Resources"]
            gpus = int(resources.get("GPU", 0))
            unused = free.get(node["NodeID"], {}).get("GPU", 0.0)
            models = [key[len(_ACCELERATOR) :] for key in resources if key.startswith(_ACCELERATOR)]
            found.append(
                {
                    "id": node["NodeID"],
                    "host": node["NodeManagerHostname"],
                    "address": node["NodeManagerAddress"],
                    "is_alive": node["Alive"],
                    "gpus": gpus,
                    "free_gpus": int(unused + 1e-6),
                    "cpus": int(resources.get("CPU", 0)),
                    "model": ", ".join(models),
                    "death": node.get("DeathReasonMessage") or "",
                }
            )
        return found

    def actors(self, prefix: str) -> dict[str, str]:
        """The names of living actors with this prefix, and their ids."""
        found = {}
        for name in self._ray.util.list_named_actors():
            if name.startswith(prefix):
                try:
                    handle = self._ray.get_actor(name)
                except ValueError:
                    continue  # it has ended in the meantime
                found[name] = handle._actor_id.hex()
                self._handles[found[name]] = handle
        return found

    def create(self, name: str, node: str, gpus: int, config: dict[str, Any]) -> str:
        """Create the actor of a node; returns its id. Ray starts it when the GPUs are free."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from stoker.features.backends.ray import node_actor

        self._ray.cloudpickle.register_pickle_by_value(node_actor)
        handle = (
            self._ray.remote(node_actor.NodeActor)
            .options(
                name=name,
                lifetime="detached",
                num_gpus=gpus,
                num_cpus=0,
                max_restarts=0,
                get_if_exists=True,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote({**config, "gpus": gpus})
        )
        id: str = handle._actor_id.hex()
        self._handles[id] = handle
        return id

    def kill(self, id: str) -> None:
        handle = self._handles.pop(id, None)
        if handle is not None:
            self._ray.kill(handle)

    def call(
        self, calls: list[tuple[str, str, tuple[Any, ...]]], timeout: float
    ) -> list[tuple[str, Any]]:
        """Call methods of actors: (id, method, arguments). Returns (outcome, value) for each."""
        errors = self._ray.exceptions
        refs: list[Any] = []
        for id, method, arguments in calls:
            handle = self._handles.get(id)
            refs.append(None if handle is None else getattr(handle, method).remote(*arguments))
        waiting = [ref for ref in refs if ref is not None]
        if waiting:
            self._ray.wait(waiting, num_returns=len(waiting), timeout=timeout)
        found: list[tuple[str, Any]] = []
        for (id, _, _), ref in zip(calls, refs, strict=True):
            if ref is None:
                found.append((DEAD, "there is no such actor"))
                continue
            try:
                found.append((OK, self._ray.get(ref, timeout=0)))
            except errors.GetTimeoutError:
                found.append((LATE, None))
            except errors.ActorUnavailableError:
                found.append((LATE, None))
            except errors.RayActorError as error:
                self._handles.pop(id, None)
                found.append((DEAD, str(error).partition("\n")[0]))
            except errors.RayTaskError as error:
                found.append((ERROR, str(error.cause) or str(error).splitlines()[-1]))
        return found


def main(address: str) -> None:
    from stoker.engine.supervisor.parent_death import send_at_parent_death

    send_at_parent_death(signal.SIGKILL)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Ray prints to stdout too
    try:
        client = Client(address)
    except BaseException as error:
        send(answers, (False, f"{type(error).__name__}: {error}"))
        os._exit(1)
    send(answers, (True, None))
    while True:
        try:
            method, arguments = receive(requests)
        except EOFError:
            break
        try:
            answer = (True, getattr(client, method)(*arguments))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        try:
            send(answers, answer)
        except BrokenPipeError:
            break
    os._exit(0)  # the shutdown of Ray takes time and has nothing to do


if __name__ == "__main__":
    main(sys.argv[1])
