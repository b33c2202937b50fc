"""The weight of the lightest vertex cut between two sets of nodes, which may be in the cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

_SOURCE, _SINK = -1, -2
_ENDLESS = 1 << 62


def lightest_cut(
    weights: Mapping[int, int],
    rows: Mapping[int, Collection[int]],
    first: Iterable[int],
    ends: Collection[int],
) -> int:
    """Returns the least weight of nodes that cut all paths from `first` to `ends`; 0 if none.

    By augmenting paths, shortest first (Edmonds and Karp).  Every node x is split into an arrival 2
    x and a departure 2 x + 1, joined by an arc of its weight; the other arcs are endless.
    """
    room: dict[int, dict[int, int]] = {_SOURCE: {2 * x: _ENDLESS for x in first}, _SINK: {}}
    for x, weight in weights.items():
        ahead = [_SINK] if x in ends else [2 * y for y in rows.get(x, ()) if y in weights]
        room.setdefault(2 * x, {})[2 * x + 1] = weight
        room.setdefault(2 * x + 1, {}).update(dict.fromkeys(ahead, _ENDLESS))
    total = 0
    while True:
        came: dict[int, int] = {_SOURCE: _SOURCE}
        queue = deque([_SOURCE])
        while queue and _SINK not in came:
            a = queue.popleft()
            for b, left in room[a].items():
                if left > 0 and b not in came:
                    came[b] = a
                    queue.append(b)
        if _SINK not in came:
            return total
        path = [_SINK]
        while path[-1] != _SOURCE:
            path.append(came[path[-1]])
        steps = [(a, b) for b, a in pairwise(path)]
        pushed = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= pushed
            room[b][a] = room[b].get(a, 0) + pushed
        total += pushed
