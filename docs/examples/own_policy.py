"""A network of your own, trained by REINFORCE on one set and evaluated on another: about a minute.

    python docs/examples/own_policy.py [UPDATES] [adjacency | graph]

The network scores each vertex by its features; the advantage of an episode is its cost, less the
mean of all episodes of the same task, in units of the cheapest classical order.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import veenv

updates, batch, each = int(sys.argv[1]) if len(sys.argv) > 1 else 150, 16, 16
kind = sys.argv[2] if len(sys.argv) > 2 else "adjacency"
train, test = (veenv.sets(f"scalar-small{end}").observing(kind) for end in ("-train", ""))
env, cheapest = train.env, jnp.array([min(costs.values()) for costs in train.classical])


def features(seen):
    """Those of the vertices that can be eliminated, as either kind of observation has them."""
    if kind == "adjacency":
        return seen.features
    first = env.spec.num_inputs
    return seen.nodes[..., first : first + env.num_actions, :]


class Scores(eqx.Module):
    """Logits of all vertices, each from its own features."""

    layers: eqx.nn.MLP

    def __call__(self, key, seen, mask):
        """Samples an action for each of a batch of observations."""
        return jax.random.categorical(key, self.logits(seen, mask))

    def logits(self, seen, mask):
        """Logits [B, A]; -inf where an action is not legal."""
        scores = jax.vmap(jax.vmap(self.layers))(features(seen))[..., 0]
        return jnp.where(mask, scores, -jnp.inf)


def play(net, params, key):
    """Costs and log-probabilities of one episode in each of a batch of environments."""

    def step(state, key):
        seen = jax.vmap(env.observe)(state, params)
        logits = net.logits(seen, state.action_mask)
        logits = jnp.where(state.terminated[:, None], 0, logits)
        action = jax.random.categorical(key, logits)
        chosen = jax.nn.log_softmax(logits)[jnp.arange(len(action)), action]
        after, reward, _ = jax.vmap(env.transition)(state, action, params)
        return after, (reward * ~state.terminated, chosen * ~state.terminated)

    keys = jax.random.split(key, env.num_actions)
    _, (rewards, chosen) = jax.lax.scan(step, jax.vmap(env.init)(params), keys)
    return -rewards.sum(0), chosen.sum(0)


@eqx.filter_jit
def update(net, state, key):
    """One step of Adam on fresh episodes of random tasks."""
    keys = jax.random.split(key)
    tasks = jax.random.randint(keys[0], (batch,), 0, len(train)).repeat(each)

    def loss(net):
        costs, chosen = play(net, train.task(tasks), keys[1])
        scaled = (costs / cheapest[tasks]).reshape(batch, each)
        advantage = (scaled - scaled.mean(1, keepdims=True)).ravel()
        return (advantage * chosen).mean(), scaled.mean()

    (_, mean), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(net)
    change, state = adam.update(gradient, state)
    return eqx.apply_updates(net, change), state, mean


num_features = features(env.observe(env.init(), env.default_params)).shape[-1]
net = Scores(eqx.nn.MLP(num_features, 1, 32, 2, key=jax.random.key(0)))
adam = optax.adam(3e-3)
state = adam.init(eqx.filter(net, eqx.is_array))
for k in range(updates):
    net, state, mean = update(net, state, jax.random.key(k))
    if k % 50 == 0 or k == updates - 1:
        print(f"update {k}: mean cost {mean:.3f} of the cheapest classical order", flush=True)
print(veenv.evaluate(net, test, samples=32, name="own network"))
