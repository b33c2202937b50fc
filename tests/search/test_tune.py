"""`veenv.tune`: what it gives is a Jacobian, whatever was chosen; the budget; files and cache."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared
from veenv import Jacobian, make_graph, tune
from veenv.orders.order import fingerprint
from veenv.search.tuning import contest, records, work
from veenv.search.tuning.forms import AUTO, Form, other_forms, own_modes
from veenv.search.tuning.records import Record, Result
from veenv.search.tuning.work import shapes_of

X = jnp.array([0.3, -1.2, 0.7])
W = {"w": jnp.array([[1.0, 2.0, 0.5], [0.1, -0.3, 1.0]]), "b": jnp.array([0.1, 0.2])}


def layer(x: jax.Array, params: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    y = jnp.tanh(params["w"] @ x + params["b"])
    return y, jnp.sum(y * y)


def f(x):
    return jnp.sin(x) * jnp.roll(x, 1)


def chosen(fun, args, form: Form, argnums=0, has_aux: bool = False) -> Jacobian:
    """A Jacobian as if tuning had chosen a form."""
    plain = (lambda *a: fun(*a)[0]) if has_aux else fun
    graph = make_graph(plain, argnums)(*args)
    name = fingerprint(graph)
    record = Record("f", argnums, has_aux, shapes_of(args), name, None, 1.0, 0.5, True, {}, form)
    return Jacobian(fun, record)


def reverse_form(fun, args, argnums=0) -> Form:
    return Form("jacve", "reverse", make_graph(fun, argnums)(*args).reverse())


def assert_same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12), a, b)


@pytest.mark.usefixtures("optimised")
def test_it_is_a_jacobian_within_its_budget(x64):
    began = time.perf_counter()
    jacobian = tune(layer, X, W, argnums=(0, 1), budget="2s", cache=False)
    assert time.perf_counter() - began < 4.0  # on a busy machine
    x, w = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (X, W))
    assert_same(jacobian(x, w), jax.jacrev(layer, (0, 1))(x, w))
    assert jacobian.form in jacobian.table()
    assert "layer" in repr(jacobian)


FORMS = [{}, {"kernel": "fused"}, {"pin": False}, {"pin": True}]


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_every_form_is_exact(x64, options):
    x, w = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (X, W))
    form = replace(reverse_form(layer, (x, w), (0, 1)), **options)
    jacobian = chosen(layer, (x, w), form, (0, 1))
    assert_same(jacobian(x, w), jax.jacfwd(layer, (0, 1))(x, w))


def with_anything(x):
    return jnp.sin(x) * x[::-1], {"text": "text", "max": max, "n": 3, "cosine": jnp.cos(x)}


@pytest.mark.parametrize("mode", ["jacfwd", "jacrev", "auto", "reverse"])
def test_auxiliary_outputs_are_anything(mode):
    if mode == "reverse":
        form = reverse_form(lambda x: with_anything(x)[0], (X,))
    else:
        form = AUTO if mode == "auto" else Form(mode)
    jacobian = chosen(with_anything, (X,), form, has_aux=True)
    for x in (X, X + 1):
        found, aux = jacobian(x)
        np.testing.assert_allclose(found, jax.jacrev(lambda x: with_anything(x)[0])(x), 1e-5, 1e-6)
        np.testing.assert_allclose(aux.pop("cosine"), jnp.cos(x), 1e-6)
        assert aux == {"text": "text", "max": max, "n": 3}


def test_under_jit_vmap_and_grad(x64):
    x = np.asarray(X, np.float64)
    jacobian = chosen(f, (x,), reverse_form(f, (x,)))
    several = np.stack([x, 2 * x])
    both = jax.jit(lambda z: (jax.vmap(jacobian)(z), jax.vmap(jax.jacrev(f))(z)))(several)
    assert_same(*both)
    total = jax.jit(jax.grad(lambda z: jnp.sum(jacobian(z) ** 2)))(x)
    assert_same(total, jax.jit(jax.grad(lambda z: jnp.sum(jax.jacrev(f)(z) ** 2)))(x))


def with_times(jacobian: Jacobian, seconds: dict[Form, float]) -> Jacobian:
    """A Jacobian as if these forms had been timed; at most one of them is JAX's own."""
    base = next((t for form, t in seconds.items() if form.mode != "jacve"), None)
    ratios = {form: base and t / base for form, t in seconds.items()}
    results = tuple(
        Result(form, t, ratios[form], ratios[form], ratios[form], 9, 0.1, None, "")
        for form, t in seconds.items()
    )
    return Jacobian(jacobian.__wrapped__, replace(jacobian.record, results=results))


@pytest.mark.parametrize(
    ("timed", "found", "ratio"),
    [
        ({}, "not measured; 0 of 0", None),
        ({Form("jacfwd"): 1.0}, "not measured; 1 of 1", None),
        ({AUTO: 0.2}, "measured without JAX's modes; 1 of 1", None),
        ({AUTO: 0.2, Form("jacfwd"): 1.0}, "0.20 of the time of jax.jacfwd; 2 of 2", 0.2),
    ],
)
def test_what_is_printed_was_measured(timed, found, ratio):
    jacobian = with_times(chosen(jnp.sin, (X,), AUTO), timed)
    assert f": jacve auto, {found}" in repr(jacobian)
    assert jacobian.ratio == ratio
    assert jacobian.table().count("| jax.jacfwd |") == (Form("jacfwd") in timed)


@pytest.mark.parametrize(
    ("seconds", "other"),
    [({}, AUTO), ({Form("jacrev"): 2.0}, Form("jacrev")), ({AUTO: 1.0, Form("jacrev"): 2.0}, AUTO)],
)
def test_other_shapes_take_the_fastest_of_what_needs_no_tuning(seconds, other, monkeypatch, x64):
    taken = []
    plain = Form.jacobian

    def noted(form, *args, **kwargs):
        made = plain(form, *args, **kwargs)
        return lambda *a: taken.append(form) or made(*a)

    monkeypatch.setattr(Form, "jacobian", noted)
    jacobian = with_times(chosen(f, (X,), reverse_form(f, (X,))), seconds)
    longer = jnp.arange(5.0)
    assert_same(jacobian(longer), jax.jacrev(f)(longer))
    assert taken == [other]


def test_python_code_may_look_at_other_arguments():
    def f(x, steps, kind):
        for _ in range(steps):
            x = jnp.sin(x) if kind == "sin" else jnp.cos(x) * x
        return x

    jacobian = chosen(f, (X, 2, "sin"), reverse_form(f, (X, 2, "sin")))
    assert_same(jacobian(X, 2, "sin"), jax.jacrev(f)(X, 2, "sin"))
    # Another graph at the same shapes, which the order does not fit.
    assert_same(jacobian(X, 3, "cos"), jax.jacrev(f)(X, 3, "cos"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budget": "soon"}, ValueError, "budget must be a time"),
        ({"batch": 0}, ValueError, "batch must be a positive number"),
        ({"argnums": 3}, ValueError, "argnums 3 is out of range"),
        ({"in_axes": (0, None)}, ValueError, "in_axes must be 0"),
        ({"in_axes": ({"w": 0},)}, ValueError, "a prefix of the arguments' trees"),
        ({"in_axes": True}, ValueError, "in_axes must be 0"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        tune(jnp.sin, X, **{"budget": "5s", **arguments})


@pytest.mark.parametrize(
    ("in_axes", "batched"),
    [
        (0, {"x", "w", "b"}),
        (None, set()),
        ([0, None], {"x"}),
        ((None, {"w": None, "b": 0}), {"b"}),
        (({"x": 0, "none": None}, {"w": 0, "b": None}), {"x", "w"}),
    ],
)
def test_the_batch_runs_over_what_in_axes_says_of_a_tree(in_axes, batched):
    seen = {}

    def f(x, params):
        seen.update({**x, **params})
        return jnp.tanh(params["w"] @ x["x"] + params["b"])

    args = {"x": X, "none": None}, W
    jacobian = tune(f, *args, batch=5, in_axes=in_axes, budget="0.2s", cache=False)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    many = {name: jnp.stack([x] * 5) if name in batched else x for name, x in {"x": X, **W}.items()}
    wide = {"x": many["x"], "none": None}, {"w": many["w"], "b": many["b"]}
    if batched:
        result = jax.vmap(jacobian, in_axes=axes)(*wide)
        expected = jax.vmap(jax.jacrev(f), in_axes=axes)(*wide)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), result, expected)


def record_with(**fields) -> dict:
    form = {"mode": "jacve", "order": "reverse", "ids": [2, 1], "kernel": "xla", "pin": "auto"}
    whole = {"format": records.FORMAT, "version": 1, "name": "f", "argnums": 0, "has_aux": False}
    whole |= {"shapes": [[3], None], "fingerprint": "0" * 64, "batch": None, "budget": 1.0}
    whole |= {"seconds": 0.5, "settled": True, "where": {"jax": "1"}, "chosen": form}
    return {**whole, "results": [], **fields}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "other"}, "format"),
        ({"argnums": "0"}, "argnums"),
        ({"budget": -1}, "budget"),
        ({"shapes": [[-1]]}, "shapes"),
        ({"name": "x" * 20_000}, "name: 20000 characters"),
        ({"chosen": {"mode": "exec"}}, "chosen.mode: expected one of"),
        ({"chosen": {**record_with()["chosen"], "ids": [0]}}, "chosen.ids"),
        ({"results": [{}]}, r"results\[0\]"),
    ],
)
def test_a_wrong_record_names_the_field(tmp_path, fields, message):
    (tmp_path / "f.json").write_text(json.dumps(record_with(**fields)))
    with pytest.raises(ValueError, match=message):
        records.read(tmp_path / "f.json")


def test_what_was_found_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("VEENV_CACHE_DIR", str(tmp_path))

    first = tune(f, X, budget="2s")
    assert len(list((tmp_path / "tuned").iterdir())) == 1

    def refuse(self, forms):
        raise AssertionError("measured again")

    monkeypatch.setattr(work.Contest, "run", refuse)
    assert tune(f, X, budget="2s").record == first.record
    for other in (
        lambda: tune(f, X, budget="2s", batch=3),
        lambda: tune(f, jnp.ones(4), budget="2s"),
        lambda: tune(f, X.astype(jnp.bfloat16), budget="2s"),
        lambda: tune(lambda x: jnp.cos(x) * jnp.roll(x, 1), X, budget="2s"),
        lambda: tune(f, X, budget="2s", cache=False),
    ):
        with pytest.raises(AssertionError, match="measured again"):
            other()
    (file,) = (tmp_path / "tuned").iterdir()
    file.write_text("no JSON")  # what is of no use is not used
    with pytest.raises(AssertionError, match="measured again"):
        tune(f, X, budget="2s")


def test_each_form_is_tried_once():
    graph = make_graph(layer, (0, 1))(X, W)
    forms = list(other_forms(graph, ["tanh", "mul"], 0.1, kernels=True))
    assert len(forms) == len({(f.ids, f.kernel, f.pin) for f in forms}) >= 4
    assert {f.kernel for f in forms} == {"xla", "fused"}
    assert {f.pin for f in forms} == {"auto", True, False}
    graph.check_order(forms[0].ids)
    plain = list(other_forms(graph, ["mul"], 0.1, kernels=False))
    assert {(f.kernel, f.pin) for f in plain} == {("xla", "auto")}


def test_the_form_that_jacve_takes_is_compiled_first():
    jacobian = tune(lambda x: jnp.sin(x) * x, X, budget="4s", cache=False)
    forms = [r.form for r in jacobian.record.results]
    assert forms[0] == AUTO
    assert [f.mode for f in forms[1:3]] == ["jacrev", "jacfwd"][: len(forms) - 1]


def test_kernels_are_as_large_as_there_is_time_to_compile(monkeypatch):
    patience = []

    def refusing(seconds: float) -> int:
        patience.append(seconds)
        return 20

    monkeypatch.setattr(work, "kernel_limit", refusing)
    tuned = tune(layer, X, W, argnums=(0, 1), batch=4, budget="10s", cache=False)
    kernels = [row for row in tuned.table().splitlines() if "one kernel" in row]
    assert kernels
    assert all("more than 20 scalar operations" in row for row in kernels)
    assert all(seconds < 0.6 * 10 for seconds in patience)
    assert veenv.tree_allclose(tuned(X, W), jax.jacrev(layer, (0, 1))(X, W), rtol=1e-5)


def test_kernels_that_the_function_asks_for_itself_have_no_limit(monkeypatch):
    monkeypatch.setattr(work, "kernel_limit", lambda seconds: 20)

    def products(x):
        return jnp.tanh(jnp.outer(x, x)).sum(0)

    def slopes(x):
        return veenv.jacve(products, kernel="fused")(x).sum(0)

    table = tune(slopes, X, budget="4s", cache=False).table()
    modes = [row for row in table.splitlines() if "jax.jac" in row.split("|")[1]]
    assert len(modes) == 2
    assert not any("CannotFuseError" in row for row in modes)


@pytest.mark.parametrize(
    ("inputs", "outputs", "first"), [(2, 3, "fwd"), (3, 2, "rev"), (3, 3, "rev")]
)
def test_the_mode_of_fewer_passes_is_first(inputs, outputs, first):
    # It is also what a call gets whose time is up before anything is timed.
    assert own_modes(inputs, outputs)[0].mode == f"jac{first}"


def newton(x, a, jacobian=veenv.jacve):
    """A step with a Jacobian and a solve inside."""
    fun = lambda x: jnp.tanh(x) * a["scale"] + x**3  # noqa: E731
    return x - jnp.linalg.solve(jacobian(fun)(x), fun(x))


def by_itself(x, a):
    return newton(x, a)


STEPS = {
    newton: ["the step with jax.jacrev", "the step with jax.jacfwd", "the step with jacve",
             "fuse with jacve", "fuse with jax.jacfwd", "fuse with jax.jacrev"],
    by_itself: ["the step", "fuse"],
}  # fmt: skip


@pytest.mark.parametrize("step", spared(STEPS, newton))
def test_a_whole_step(step, tmp_path, monkeypatch, x64):
    monkeypatch.setenv("VEENV_CACHE_DIR", str(tmp_path))
    x, a = jnp.array([0.3, 0.5]), {"scale": jnp.array([1.0, 2.0])}
    options = {"argnums": None, "batch": 64, "in_axes": (0, {"scale": None}), "budget": "60s"}
    monkeypatch.setattr(contest, "MOST_ROUNDS", 4)
    tuned = veenv.tune(step, x, a, **options)
    assert [r.form.label for r in tuned.record.results] == STEPS[step]
    assert all(r.median for r in tuned.record.results)
    assert tuned.record.faster_mode.label in STEPS[step][:2]
    assert repr(tuned).startswith(f"<{step.__name__}: {tuned.form}, ")
    points = jnp.stack([x, 2 * x, 3 * x])
    expected = jax.vmap(newton, (0, None))(points, a)
    assert_same(jax.vmap(tuned, (0, None))(points, a), expected)
    again = veenv.tune(step, x, a, **options)
    assert again.record == tuned.record
    with pytest.raises(ValueError, match="has_aux"):
        veenv.tune(step, x, a, argnums=None, has_aux=True)
