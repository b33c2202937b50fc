"""Plays a task with Gumbel MuZero's search, the environment as its exact model.

mctx searches at the root of every move. No network is trained: the prior of a vertex is what its
elimination costs now, and the value of a state is what the rest costs in reverse order. Needs the
extra `mctx` (``pip install -e '.[mctx]'``).

    python scripts/play_mctx.py --task RoeFlux_1d
"""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import importlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from agents.cli.report import result_table
from agents.config.args import fail, parse
from veenv.env import State, VertexEnv
from veenv.env.factory import make
from veenv.graph.graph import CostModel

try:
    mctx: Any = importlib.import_module("mctx")
except ImportError:
    fail("mctx is not installed; pip install -e '.[mctx]'")


@dataclasses.dataclass(frozen=True)
class PlayArgs:
    """Plays a task with Gumbel MuZero's search, the environment as its exact model.

    Raises:
      ValueError: naming the first number that is out of range.
    """

    task: str
    """Task to play (`python -c "import veenv; print(*veenv.tasks.list())"`)."""

    cost: CostModel = "multiplications"
    """What an elimination costs."""

    games: int = 4
    """Games played side by side, each with noise of its own; the best one counts."""

    num_simulations: int = 32
    """Simulations before each move."""

    max_num_considered_actions: int = 16
    """Actions at the root among which sequential halving chooses."""

    seed: int = 0
    """Seed of the noise."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name in ("games", "num_simulations", "max_num_considered_actions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def value(env: VertexEnv, state: State) -> Float[Array, ""]:
    """Return of eliminating what is left in reverse order, float32 []."""
    slots = jnp.arange(env.num_actions, dtype=jnp.int32)
    order = jnp.argsort(jnp.where(state.action_mask, -slots, env.num_actions))

    def step(state: State, slot: Int[Array, ""]) -> tuple[State, Float[Array, ""]]:
        after, reward, _ = env.transition(state, slot)
        return after, reward

    _, rewards = lax.scan(step, state, order.astype(jnp.int32))
    return rewards.sum()


def prior(env: VertexEnv, state: State) -> Float[Array, " A"]:
    """Logits that favour cheap eliminations: minus log1p of their costs, legal ones only."""
    log_cost = env.observe(state).features[:, 2]
    return jnp.where(state.action_mask, -log_cost, jnp.finfo(jnp.float32).min)


def model(
    env: VertexEnv, key: PRNGKeyArray, actions: Int[Array, " B"], states: State
) -> tuple[Any, State]:
    """One step of the environment, as `mctx` calls a learned model."""
    del key
    after, rewards, _ = jax.vmap(env.transition)(states, actions)
    output = mctx.RecurrentFnOutput(
        reward=rewards,
        discount=1.0 - after.terminated.astype(jnp.float32),
        prior_logits=jax.vmap(lambda s: prior(env, s))(after),
        value=jax.vmap(lambda s: value(env, s))(after),
    )
    return output, after


def play(env: VertexEnv, key: PRNGKeyArray, args: PlayArgs) -> State:
    """Plays whole games, searching before each move.

    Args:
      env: the environment.
      key: a key for the search's noise.
      args: sizes of the search.

    Returns:
      The final states, every leaf with a first axis over games.
    """

    def move(states: State, key: PRNGKeyArray) -> tuple[State, None]:
        root = mctx.RootFnOutput(
            prior_logits=jax.vmap(lambda s: prior(env, s))(states),
            value=jax.vmap(lambda s: value(env, s))(states),
            embedding=states,
        )
        found = mctx.gumbel_muzero_policy(
            None,
            key,
            root,
            lambda _, *inputs: model(env, *inputs),
            args.num_simulations,
            invalid_actions=~states.action_mask,
            max_num_considered_actions=args.max_num_considered_actions,
        )
        return jax.vmap(env.transition)(states, found.action)[0], None

    start = jax.tree.map(lambda leaf: jnp.stack([leaf] * args.games), env.init())
    return lax.scan(move, start, jax.random.split(key, env.max_steps))[0]


def main() -> None:
    """Parses the command line, plays, and prints the counts and the best order."""
    args = parse(PlayArgs)
    try:
        env = make(args.task, cost=args.cost)
    except ValueError as error:
        fail(str(error))
    begin = time.perf_counter()
    states = jax.jit(lambda key: play(env, key, args))(jax.random.key(args.seed))
    costs = np.asarray(states.cost)
    seconds = time.perf_counter() - begin
    best = jax.tree.map(lambda leaf: leaf[costs.argmin()], states)
    graph, order = env.graph, env.order(best)
    classical = {
        "forward": graph.forward(), "reverse": graph.reverse(), "Markowitz": graph.markowitz()
    }  # fmt: skip
    known = {name: graph.cost(ids, args.cost) for name, ids in classical.items()}
    print(f"{args.task}: {env.max_steps} moves, {args.num_simulations} simulations each, "
          f"{args.games} games, {seconds:.1f} s")  # fmt: skip
    print("costs of the games:", *sorted(costs.tolist()))
    print(result_table(known, graph.cost(order, args.cost), "mctx", cost=args.cost))
    print("order:", *order)


if __name__ == "__main__":
    run_script(main)
