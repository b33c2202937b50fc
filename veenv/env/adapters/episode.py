"""Episodes that record which task they play, shared by the adapters to gymnax, jumanji and Stoa."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.render import Frame, rgb_array
from veenv.env.state import State, owned
from veenv.env.task_set import TaskDistribution, pick_params
from veenv.graph.graph import Graph


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Episode:
    """An episode of one of several tasks.

    Attributes:
      state: the environment's state.
      task: int32 [], which task is played.
      key: from which a wrapper that resets by itself draws the next task.
    """

    state: State
    task: Int[Array, ""]
    key: PRNGKeyArray

    @property
    def rng_key(self) -> PRNGKeyArray:
        """The key, under Stoa's name."""
        return self.key


@dataclass(frozen=True)
class TaskEpisodes:
    """Episodes of an environment, or of tasks that are drawn uniformly.

    Attributes:
      env: the environment.
      params: params of all tasks, every leaf with a first axis over tasks.
      graphs: their graphs.
      names: their names.
    """

    env: VertexEnv
    params: EnvParams
    graphs: tuple[Graph, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, played: VertexEnv | TaskDistribution) -> TaskEpisodes:
        """Returns the episodes of an environment's graph, or of a task set.

        Raises:
          TypeError: `played` is neither.
        """
        if isinstance(played, TaskDistribution):
            return cls(played.env, played.params, played.graphs, played.names)
        if not isinstance(played, VertexEnv):
            raise TypeError(
                f"expected what veenv.make or TaskDistribution.of makes, got {played!r:.60}"
            )
        params = jax.tree.map(lambda leaf: leaf[None], played.default_params)
        return cls(played, params, (played.graph,), ("VertexEnv",))

    def begin(self, key: PRNGKeyArray, params: EnvParams | None = None) -> tuple[Any, Episode]:
        """Returns the first observation, and an episode of a task that the key draws."""
        num = (self.params if params is None else params).vertex_ids.shape[0]
        task = jnp.zeros((), jnp.int32)
        if num > 1:
            task = jax.random.randint(key, (), 0, num, jnp.int32)
        if num == 1 and params is None:
            obs, state = owned(self._only)
        else:
            obs, state = self.env.reset(None, pick_params(params or self.params, task))
        return obs, Episode(state, task, owned(key))

    @cached_property
    def _only(self) -> tuple[Any, State]:
        """The first observation and state of the one task, as values.

        Wrappers reset in a branch of a condition, where a batch would compute them for each.
        """
        with jax.ensure_compile_time_eval():
            return jax.jit(lambda params: self.env.reset(None, params))(pick_params(self.params, 0))

    def step(
        self, episode: Episode, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[Any, Episode, Float[Array, ""], dict[str, Any]]:
        """Returns observation, episode, reward and info; info has ``order`` and ``task``, too."""
        params = self.params if params is None else params
        task_params = pick_params(params, episode.task)
        obs, state, reward, _, _, info = self.env.step(None, episode.state, action, task_params)
        info |= {"order": order_ids(state, task_params), "task": owned(episode.task)}
        return obs, Episode(state, *owned((episode.task, episode.key))), reward, info

    def observe(self, episode: Episode, params: EnvParams | None = None) -> Any:
        """Returns the observation of an episode."""
        params = self.params if params is None else params
        return self.env.observe(episode.state, pick_params(params, episode.task))

    def picture(self, state: State, task: Any = 0) -> UInt8[np.ndarray, "600 960 3"]:
        """Draws the remaining graph, laid out by depth; not for use under a transformation."""
        index = int(task)
        params = pick_params(self.params, index)
        return rgb_array(Frame.of(self.names[index], self.graphs[index], state, params))

    def first_info(self, episode: Episode) -> dict[str, Any]:
        """Returns the info before the first step."""
        cost, total, task = owned((episode.state.cost, episode.state.cost, episode.task))
        no, order = jnp.zeros((), bool), jnp.full(self.env.num_actions, -1, jnp.int32)
        return {"cost": cost, "total": total, "illegal": no, "order": order, "task": task}


class TimeSteps:
    """Time steps of the environment, in the form that jumanji and Stoa share.

    Attributes:
      episodes: what is played.
      types: the library's module of `TimeStep` and `StepType`.
      last: the name of the `StepType` of an end.
    """

    episodes: TaskEpisodes
    types: str
    last: str

    def __repr__(self) -> str:
        """Returns the name of the class, and the environment."""
        return f"{type(self).__name__}({self.episodes.env!r})"

    def _begin(self, key: PRNGKeyArray, params: EnvParams | None = None) -> tuple[Episode, Any]:
        obs, episode = self.episodes.begin(key, params)
        extras = self.episodes.first_info(episode)
        return episode, self._time_step("FIRST", obs, episode, jnp.zeros((), jnp.float32), extras)

    def _go_on(
        self, episode: Episode, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[Episode, Any]:
        obs, episode, reward, extras = self.episodes.step(episode, action, params)
        return episode, self._time_step("MID", obs, episode, reward, extras)

    def _time_step(self, kind: str, obs: Any, episode: Episode, reward: Any, extras: Any) -> Any:
        types, over = importlib.import_module(self.types), episode.state.terminated
        kinds = types.StepType
        return types.TimeStep(
            step_type=jnp.where(over, getattr(kinds, self.last), getattr(kinds, kind)),
            reward=reward,
            discount=1.0 - over.astype(jnp.float32),
            observation=self._shown(obs),
            extras=extras,
        )

    def _shown(self, obs: Any) -> Any:
        """Converts an observation to the form of the library's spaces."""
        return obs


def order_ids(state: State, params: EnvParams) -> Int[Array, " A"]:
    """Returns the vertex ids eliminated so far, in order; -1 after them."""
    ids = params.vertex_ids[jnp.maximum(state.order, 0)]
    return jnp.where(state.order >= 0, ids, -1)


def bounds(space: Any) -> tuple[tuple[int, ...], np.dtype, Any, Any]:
    """Returns shape, dtype and bounds of a Gymnasium space of one array; a mask's dtype is bool."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.MultiBinary):
        return space.shape, np.dtype(bool), False, True
    assert isinstance(space, gymnasium.spaces.Box)
    return space.shape, np.dtype(space.dtype), space.low, space.high


def check_kind(env: VertexEnv, library: str) -> None:
    """Checks that the kind of observations has a space in the library: all but packed ones.

    Raises:
      ValueError: they are the state's own bits.
    """
    if env.observation == "packed":
        raise ValueError(
            f"{library} has no spaces for observation='packed'; use 'adjacency', 'flat' or 'graph'"
        )
