"""Many environments in one compiled step, as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from veenv.env.adapters.gymnasium_infos import (
    as_slots,
    check_autoreset_mode,
    final_infos,
    final_orders,
    with_flags,
)
from veenv.env.adapters.gymnasium_tasks import (
    RENDER_MODES,
    GymTasks,
    Obs,
    Tasks,
    chosen_task,
    mask_of,
)
from veenv.env.encode import EnvParams
from veenv.env.observe import ObservationKind, as_fields
from veenv.env.rewards import Shaping
from veenv.env.state import State, owned
from veenv.env.task_set import pick_params
from veenv.graph.graph import CostModel

_WHOLE = 1 << 24  # most bytes of observations that one program writes at once: half of 32 MB
_BLOCK = 1 << 22  # bytes of a part of larger ones, copied while it is in the processor's cache


def _holders(arrays: dict[str, np.ndarray]) -> int:
    """Returns the largest reference count among the arrays of a dictionary."""
    return max(sys.getrefcount(array) for array in arrays.values())


_NOBODY = _holders({"": np.zeros(1)})


# Gymnasium's attribute `spec` is a property here, which pyright does not allow.
class GymVectorEnv(GymTasks, VectorEnv[Any, np.ndarray, np.ndarray]):  # pyright: ignore[reportIncompatibleVariableOverride]
    """`num_envs` environments side by side, each as `veenv.env.adapters.gymnasium.GymVertexEnv`.

    * ``AutoresetMode.NEXT_STEP``, Gymnasium's default: observation and info of the step that ends
      an episode are those of its end, with ``order``; the next step ignores its action, pays 0 and
      shows the first observation of the next episode.
    * ``AutoresetMode.SAME_STEP``: an environment whose episode ends is reset in the same step. The
      observation and the info (``action_mask``, ``cost``, ``total``, ``illegal``, ``task``) are
      those of the new episode. ``info["final_obs"]`` (an object array of observations, None where
      nothing ended) and ``info["final_info"]`` (arrays ``cost``, ``total``, ``illegal``,
      ``action_mask`` and object arrays ``task`` and ``order``) hold the old one's end;
      ``_final_obs`` and ``_final_info`` say where.
    * **Tasks**: of several, every reset gives each to as many environments, or one more. Which, and
      the task of each later episode, is drawn with the generator that ``reset(seed=...)`` seeds,
      unless ``reset(options={"task": name})`` picks one for all.

    Examples:
      >>> import veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> envs = GymVectorEnv(num_envs=3, task=graph)
      >>> obs, infos = envs.reset()
      >>> obs, rewards, terminated, truncated, infos = envs.step(np.array([0, 1, 0]))
      >>> rewards.tolist(), envs.action_masks()[0].tolist()
      ([-1.0, -1.0, -1.0], [False, True])
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  each environment sets its own copy
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        task: Tasks = "RoeFlux_1d",
        cost: CostModel | None = None,
        render_mode: str | None = None,
        *,
        shaping: Shaping = None,
        normalise: bool = False,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        observation: ObservationKind | None = None,
        max_edges: int | None = None,
    ):
        """Creates the environments.

        Args:
          num_envs: how many.
          task: a task's name, a graph, several of them (padded to one size), or a
            `VertexEnv` or a task distribution, which have a cost model and rewards of their own.
          cost: the cost model, ``"multiplications"`` by default.
          render_mode: ``"ansi"``, ``"rgb_array"`` or None.
          shaping: reference order that rewards are measured against, as `VertexEnv` takes it.
          normalise: divide rewards by the cost of the task's cheapest classical order.
          autoreset_mode: when an ended episode is followed by the next.
          max_episode_steps: steps after which an episode that has not ended is truncated.
          observation: the kind of observations, by default that of the tasks or ``"adjacency"``.
          max_edges: room for edges in observations of kind ``"graph"``, as `VertexEnv` takes it.

        Raises:
          ValueError: if `num_envs` or `max_episode_steps` is not positive, the mode of rendering
            or of resets or a name is unknown, a graph cannot be played, or a task distribution is
            given other options than its own.
        """
        if not hasattr(num_envs, "__index__") or num_envs < 1:
            raise ValueError(f"num_envs must be an integer of at least 1, got {num_envs!r}")
        self.num_envs = num_envs
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be at least 1, got {max_episode_steps}")
        mode = check_autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": mode}
        self._next_step, self._limit = mode is AutoresetMode.NEXT_STEP, max_episode_steps
        self._set_up(task, cost, render_mode, shaping, normalise, observation, max_edges)
        self._ended = np.zeros(num_envs, bool)
        self.single_observation_space = self.env.observation_space
        self.single_action_space = self.env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._indices, self._params = np.zeros(num_envs, int), self.tasks.task(0)
        self._draws = False

    def _compile(self) -> None:
        over = None if len(self.tasks) == 1 else 0
        self._start = jax.jit(
            lambda params: jax.vmap(
                lambda p, _: self.env.init(p), in_axes=(over, 0)
            )(params, jnp.arange(self.num_envs))
        )  # fmt: skip
        self._step = jax.jit(jax.vmap(self._step_one, in_axes=(0, 0, over, 0, 0)))
        self._pick = jax.jit(pick_params)
        # Arrays above 32 MB are unmapped when freed, and fresh pages take longer than a step: so
        # programs return observations in blocks, and NumPy arrays are reused.
        each = jax.tree.leaves(jax.eval_shape(lambda: self.env.reset()[0]))
        most = max(leaf.size * leaf.dtype.itemsize for leaf in each)
        whole = self.num_envs * most <= _WHOLE
        self._block = self.num_envs if whole else min(self.num_envs, max(1, _BLOCK // most))
        self._shown: list[dict[str, np.ndarray]] = []

        def observe(state: State, params: EnvParams, first: Array) -> Any:
            def part(tree: Any) -> Any:
                size = self._block
                return jax.tree.map(
                    lambda x: jax.lax.dynamic_slice_in_dim(x, first, size), tree
                )  # fmt: skip

            if over is None:
                return jax.vmap(self.env.observe, (0, None))(part(state), params)
            return jax.vmap(self.env.observe)(part(state), part(params))

        self._observe = jax.jit(observe)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to pickle, without programs and observations."""
        return {**super().__getstate__(), "_shown": []}

    def _show(self, state: State, params: EnvParams) -> Obs:
        """Copies all environments' observations to arrays that no caller still holds."""
        buffers = next((arrays for arrays in self._shown if _holders(arrays) <= _NOBODY), None)
        last = self.num_envs - self._block
        begins = [min(first, last) for first in range(0, self.num_envs, self._block)]
        upcoming = self._observe(state, params, np.int32(0))
        for index, first in enumerate(begins):
            seen = upcoming
            if first < last:  # computed while this one is copied
                upcoming = self._observe(state, params, np.int32(begins[index + 1]))
            parts = {"": seen} if isinstance(seen, jax.Array) else as_fields(seen)
            if buffers is None:
                shapes = {n: (self.num_envs, *x.shape[1:]) for n, x in parts.items()}
                types = {n: np.int8 if x.dtype == bool else x.dtype for n, x in parts.items()}
                buffers = {n: np.empty(shape, types[n]) for n, shape in shapes.items()}
                self._shown = [*self._shown[-1:], buffers]  # the last may still be in use
            for name, value in parts.items():
                buffers[name][first : first + self._block] = np.asarray(value)
        assert buffers is not None
        return buffers[""] if "" in buffers else dict(buffers)

    def _step_one(
        self,
        state: State,
        action: ArrayLike,
        params: EnvParams,
        upcoming: EnvParams | None,
        ended: Bool[Array, ""],
    ) -> tuple[State, State, EnvParams | None, Any]:
        """Steps one environment, and resets it where this step or the one before ended the episode.

        Args:
          state: the state.
          action: int32 [].
          params: the graph that is played.
          upcoming: the graph of the next episode; None for the same.
          ended: bool [], the step before has ended the episode, and this one is to reset it.

        Returns:
          The states after and before the reset, the graph that is played now (None for the same),
          then reward, terminated, truncated and info.
        """
        end, reward, info = self.env.transition(state, action, params)
        terminated, truncated = owned(end.terminated), jnp.zeros_like(end.terminated)
        if self._limit is not None:
            truncated = ~terminated & (end.num_steps >= self._limit)
        reset = ended if self._next_step else terminated | truncated

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(reset, new, old)

        played = None if upcoming is None else jax.tree.map(pick, upcoming, params)
        now = params if played is None else played
        after = jax.tree.map(pick, self.env.init(now), end)
        rest = (reward, terminated, truncated, info)
        if self._next_step:
            rest = jax.tree.map(lambda x: pick(jnp.zeros_like(x), x), rest)
        return after, end, played, rest

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Obs, dict[str, Any]]:
        """Starts an episode in every environment.

        Args:
          seed: seeds the generator that draws the tasks, one for all environments; of several
            numbers all count.
          options: ``{"task": name}`` or None.

        Raises:
          ValueError: if an option or the task is unknown.
        """
        several = seed if isinstance(seed, Sequence) else [seed]
        numbers = [operator.index(one) for one in several if one is not None]
        if len(numbers) > 1:  # mixed into one number, as there is one generator
            numbers = np.random.SeedSequence(numbers).generate_state(1).tolist()
        super().reset(seed=numbers[0] if numbers else None)
        index = chosen_task(self.tasks, options)
        self._draws = index is None and len(self.tasks) > 1
        if index is None:
            order = self.np_random.permutation(len(self.tasks))
            self._indices = order[np.arange(self.num_envs) % len(self.tasks)]
        else:
            self._indices = np.full(self.num_envs, index)
        if len(self.tasks) > 1:
            self._params = self._pick(self.tasks.params, self._indices)
        self._ended = np.zeros(self.num_envs, bool)
        self._state = first = self._start(self._params)
        zeros = np.array(first.cost)
        info = with_flags(
            {
                "cost": zeros,
                "total": zeros.copy(),
                "illegal": np.zeros(self.num_envs, bool),
                "action_mask": mask_of(first),
                "task": self._names(),
            }
        )
        return self._show(first, self._params), info

    def step(self, actions: Any) -> tuple[Obs, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Eliminates one vertex in every environment.

        Args:
          actions: integers [num_envs], the slots.

        Returns:
          Observations, rewards float64 [num_envs], terminated and truncated bool [num_envs], and
          the info described above.

        Raises:
          TypeError: if the actions are not integers.
          ValueError: if their number is not `num_envs`.
          gymnasium.error.ResetNeeded: before the first reset.
        """
        state, slots = self._begun("step"), as_slots(actions, self.num_envs, self.env.num_actions)
        following, upcoming = self._indices, None
        if self._draws:
            following = self.np_random.integers(len(self.tasks), size=self.num_envs)
            upcoming = self._pick(self.tasks.params, following)
        before = self._params
        after, end, played, (reward, terminated, truncated, info) = self._step(
            state, slots, before, upcoming, self._ended
        )
        self._state, self._params = after, before if played is None else played
        terminated, truncated = np.array(terminated), np.array(truncated)
        done = terminated | truncated
        reset = self._ended if self._next_step else done
        current = {name: np.array(value) for name, value in info.items()}
        ended: dict[str, Any] = {}
        if self._next_step:
            self._ended = done
            if done.any():
                ended = final_orders(self.tasks, self._indices, end, done)
        else:
            if done.any():
                last = self._show(end, before)
                ended = final_infos(self.tasks, self._indices, last, end, current, done)
                del last
            current = {name: np.where(done, np.zeros_like(x), x) for name, x in current.items()}
        self._indices = np.where(reset, following, self._indices)
        current |= {"action_mask": mask_of(after), "task": self._names()}
        infos = {**with_flags(current), **ended}
        obs = self._show(after, self._params)
        return obs, np.array(reward, np.float64), terminated, truncated, infos

    def _names(self) -> np.ndarray:
        """Returns the names of the current tasks, an object array."""
        return np.array([self.tasks.names[i] for i in self._indices], dtype=object)

    def render(self) -> tuple[Any, ...] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draws every environment in the render mode; returns None without one.

        Raises:
          gymnasium.error.ResetNeeded: before the first reset.
        """
        now = self._begun("render")
        if self.render_mode is None:
            return None
        return tuple(
            self._picture(int(index), jax.tree.map(lambda x, i=i: x[i], now))
            for i, index in enumerate(self._indices)
        )
