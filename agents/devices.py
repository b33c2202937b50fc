"""Many devices, many hosts: who plays which environments, and what all of them must agree on.

Every array that a train step reads is global: parameters are copied to all devices, environments
are shared out over them.  What a network plays is a function of the seed and of an environment's
global number.  Minibatches are not: each device shuffles the steps of its own environments, so that
an update exchanges gradients and nothing else.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PRNGKeyArray

from veenv.rules.base import is_key

AXIS = "envs"


@dataclasses.dataclass(frozen=True)
class ScaleConfig:
    """Devices and hosts of a run.

    Raises:
      ValueError: naming the first field that is out of range, or is missing.
    """

    devices: int | None = None
    """Devices that share the environments; all by default (on one host as many as divide
    --num-envs)."""
    coordinator: str | None = None
    """Address and port of process 0, such as 10.0.0.1:1234, for a run of several processes; each
    is started with the same options and its own --process-id."""
    num_processes: int | None = None
    """Number of processes, with --coordinator."""
    process_id: int | None = None
    """This process, from 0 to --num-processes - 1, with --coordinator; process 0 writes the run
    folder."""
    distributed: bool = False
    """Let JAX find out the processes by itself (TPU pods, Slurm, Open MPI, Kubernetes)."""

    def __post_init__(self) -> None:
        """Checks every field."""
        if self.devices is not None and self.devices < 1:
            raise ValueError(f"devices must be an integer of at least 1, got {self.devices}")
        addresses = [self.coordinator, self.num_processes, self.process_id]
        if addresses == [None, None, None]:
            return
        if None in addresses or self.distributed:
            raise ValueError(
                "coordinator, num_processes and process_id go together, and without distributed"
            )
        assert self.num_processes is not None and self.process_id is not None
        if not 0 <= self.process_id < self.num_processes:
            raise ValueError(
                f"process_id must be from 0 to num_processes - 1 = {self.num_processes - 1}, got "
                f"{self.process_id}"
            )

    @property
    def several(self) -> bool:
        """Returns whether the run has several processes."""
        return self.distributed or self.coordinator is not None


def connect(config: ScaleConfig) -> None:
    """Joins the other processes of the run, if there are any; before anything else uses JAX.

    Raises:
      ValueError: JAX found no processes by itself.
      ConnectionError: the coordinator cannot be reached.
    """
    if not config.several:
        return
    try:
        jax.distributed.initialize(config.coordinator, config.num_processes, config.process_id)
    except RuntimeError as error:
        raise ConnectionError(f"cannot join the other processes: {error}") from error
    # JAX's own handler takes SIGTERM without a word; before the first train step it ends a process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_main() -> bool:
    """Returns whether this process writes files and reports: the first one does."""
    return jax.process_index() == 0


def broadcast_number(value: float) -> float:
    """Process 0's value, on every process: clocks differ, decisions may not."""
    if jax.process_count() == 1:
        return value
    return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def any_process(flag: bool) -> bool:
    """Returns whether any process says so: a signal may reach only one of them."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.int32(flag)).any())


def broadcast(tree: Any) -> Any:
    """Process 0's arrays on every process, which must hold some of the same shapes and types."""
    if jax.process_count() == 1:
        return tree
    keys = [(jax.random.key_impl(x) if is_key(x) else None) for x in jax.tree.leaves(tree)]
    plain = jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), tree)
    leaves, structure = jax.tree.flatten(multihost_utils.broadcast_one_to_all(plain))
    return structure.unflatten(
        x if impl is None else jax.random.wrap_key_data(x, impl=impl)
        for x, impl in zip(leaves, keys, strict=True)
    )


def local(tree: Any) -> Any:
    """Returns what a process may use by itself: its own copy of arrays that are everywhere."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices on which arrays live.

    Attributes:
      mesh: the devices, along one axis.
    """

    mesh: Mesh

    @property
    def everywhere(self) -> NamedSharding:
        """A copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def copy(self, tree: Any) -> Any:
        """Copies arrays to every device; every process must hold the same ones."""
        return jax.tree.map(lambda x: _put(x, self.everywhere), tree)

    def split(self, tree: Any) -> Any:
        """Shares out the first axis of arrays; every process must hold the same ones, whole."""
        return jax.tree.map(lambda x: _put(x, self.along(0)), tree)

    def constrain(self, tree: Any, axis: int = 0) -> Any:
        """Tells the compiler that an axis of arrays is shared out over the devices."""
        return jax.lax.with_sharding_constraint(tree, self.along(axis))

    def apart(self, fun: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        """A function that each device calls with its share of the arguments.

        Args:
          fun: sums over all devices with `over_devices`, so that the results are the same on all.
          axes: of each argument the axis that is shared out; None for a copy on every device.
        """
        specs = tuple(PartitionSpec() if n is None else self.along(n).spec for n in axes)
        # The check refuses loops in users' networks whose carry starts as a constant.
        return jax.shard_map(
            fun, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )

    def along(self, axis: int) -> NamedSharding:
        """Shares out an axis over the devices."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))


def over_devices(tree: Any) -> Any:
    """Sums over the devices, each of which has a share of the rows; elsewhere what is given."""
    return jax.lax.psum(tree, AXIS) if _is_apart() else tree


def own_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Another key on each device; a single one draws with what is given."""
    if not _is_apart() or jax.lax.axis_size(AXIS) == 1:
        return key
    return jax.random.fold_in(key, jax.lax.axis_index(AXIS))


def place(num_envs: int, devices: int | None = None) -> Placement:
    """Chooses the devices that share some environments.

    Args:
      num_envs: number of environments, over all processes.
      devices: number of devices; all by default, or, on one host, as many as divide `num_envs`.

    Raises:
      ValueError: there are fewer devices, they cannot share the environments evenly, or several
        processes would not all take part.
    """
    available = jax.devices()
    if devices is None and jax.process_count() == 1:
        devices = max(n for n in range(1, len(available) + 1) if num_envs % n == 0)
    count = len(available) if devices is None else devices
    if count > len(available):
        raise ValueError(f"devices is {count}, but there are only {len(available)}")
    if jax.process_count() > 1 and count < len(available):
        raise ValueError(f"several processes use all their {len(available)} devices, got {count}")
    if num_envs % count:
        lower = num_envs - num_envs % count
        near = f"{lower} or {lower + count}" if lower else f"{count}"
        raise ValueError(
            f"{num_envs} environments cannot be shared evenly by {count} devices; choose {near}"
        )
    mesh = jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,), devices=available[:count])
    return Placement(mesh)


def _is_apart() -> bool:
    """Returns whether this is traced within `Placement.apart`."""
    return AXIS in jax.sharding.get_abstract_mesh().manual_axes


def _put(x: Any, sharding: NamedSharding) -> jax.Array:
    """An array under a sharding, made without asking other processes."""
    if isinstance(x, jax.Array) and x.sharding == sharding:
        return x
    if is_key(x):
        data = _put(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
