"""Several seeds side by side: one compiled train step, one run folder, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from veenv.agents.nn.own import Network
from veenv.agents.ppo.trainer import Trainer, Update
from veenv.agents.training.best import BestOrders
from veenv.agents.training.curriculum import FixedTasks
from veenv.env import TaskDistribution


class BestOfSeeds(BestOrders):
    """The best orders of all seeds; its record has those of each, too."""

    def __init__(self, tasks: TaskDistribution, agent: str, each: Mapping[int, BestOrders]):
        """With those of each seed."""
        super().__init__(tasks, agent)
        self._each = each

    def record(self) -> dict[str, Any]:
        """The orders as JSON, for `merge`."""
        found = super().record()
        for seed, best in self._each.items():
            found |= {_of_seed(name, seed): order for name, order in best.record().items()}
        return found

    def merge(self, record: Mapping[str, Any]) -> None:
        """As `BestOrders.merge`, for each seed what is its own."""
        super().merge(record)
        for seed, best in self._each.items():
            own = {name: record.get(_of_seed(name, seed)) for name in self.tasks.names}
            best.merge({name: order for name, order in own.items() if order is not None})


class SideBySide(FixedTasks):
    """Tasks that several seeds play, each with one start (`Trainer.beside`).

    Attributes:
      each: what each seed has found.
    """

    def __init__(self, trainer: Trainer, agent: str = "PPO"):
        """As `FixedTasks`, for every seed of the trainer."""
        self.each = {seed: FixedTasks(trainer, agent) for seed in trainer.seeds}
        best = {seed: one.best for seed, one in self.each.items()}
        super().__init__(trainer, agent, BestOfSeeds(trainer.tasks, agent, best))
        self._leading = 0

    def settle(self, above: int = 0) -> None:
        """As `FixedTasks.settle`, for every seed."""
        for one in self.each.values():
            one.settle(above)
        super().settle(above)

    def measure(self, updates: Mapping[str, Update], steps: int, *, unseen: bool) -> dict[str, Any]:
        """Means over the seeds, the least costs, and under `seeds` what each of them says."""
        found: dict[str, dict[str, Any]] = {}
        for k, (seed, one) in enumerate(self.each.items()):
            own = jax.tree.map(lambda x, k=k: x[k], updates["tasks"])
            found[str(seed)] = one.measure({"tasks": own}, steps, unseen=unseen)
            self.best.offer(np.asarray(own.min_cost), np.asarray(own.best_order), steps)
        self._leading = int(np.argmin([self.score(seen) for seen in found.values()]))
        names = self.tasks.names
        return {
            "mean_cost": _over(found, "mean_cost", np.mean),
            "min_cost": _over(found, "min_cost", min),
            "stats": _over(found, "stats", np.mean),
            "best_cost": {name: self.best.cost(name) for name in names},
            "seeds": found,
        }

    def score(self, measured: Mapping[str, Any]) -> float:
        """As `FixedTasks.score`; that of the seed with the least."""
        each = measured.get("seeds", {"": measured}).values()
        return min(super(SideBySide, self).score(seen) for seen in each)

    def networks(self, network: Network) -> dict[str, Network]:
        """That of each seed; ``weights`` is that of the seed with the least score."""
        each = [jax.tree.map(lambda x, k=k: x[k], network) for k in range(len(self.each))]
        named = {f"weights-{seed}": one for seed, one in zip(self.each, each, strict=True)}
        return {"weights": each[self._leading], **named}

    def costs(self) -> dict[str, dict[str, int]]:
        """What the best orders of each seed cost, by task."""
        names = self.tasks.names
        return {str(k): {n: one.best.cost(n) for n in names} for k, one in self.each.items()}

    def table(self) -> str:
        """As `seeds_table`."""
        return seeds_table([one.best for one in self.each.values()], tuple(self.each))


def _of_seed(name: str, seed: int) -> str:
    return f"{name}, seed {seed}"


def _over(found: Mapping[str, Mapping[str, Any]], field: str, of: Any) -> dict[str, Any]:
    """A field of every seed as one, name by name."""
    first = next(iter(found.values()))[field]
    numbers = {name: of([seen[field][name] for seen in found.values()]) for name in first}
    return {name: x if isinstance(x, int) else float(x) for name, x in numbers.items()}


def seeds_table(best: Sequence[BestOrders], seeds: Sequence[int]) -> str:
    """A line for each task: the cheapest classical order, the spread over seeds, and each seed."""
    tasks, first = best[0].tasks, "classical best middle mean worst".split()
    width = max(8, *(len(name) for name in tasks.names))
    lines = [f"{'task':<{width}}" + "".join(f"{name:>11}" for name in first) + "  by seed"]
    for name, classical in zip(tasks.names, tasks.classical, strict=True):
        costs = [one.cost(name) for one in best]
        ordered, cut = np.sort(np.array(costs, float)), len(costs) // 4
        middle = ordered[cut : len(costs) - cut].mean()
        numbers = f"{min(classical.values()):>11,}{min(costs):>11,}{middle:>11,.1f}"
        numbers += f"{np.mean(costs):>11,.1f}{max(costs):>11,}"
        by_seed = ", ".join(f"{seed}: {cost:,}" for seed, cost in zip(seeds, costs, strict=True))
        lines.append(f"{name:<{width}}{numbers}  {by_seed}")
    return "\n".join(lines)
