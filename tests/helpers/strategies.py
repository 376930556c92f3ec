"""Hypothesis strategies of spaces."""

from hypothesis import strategies as st

from hpo.spaces import Condition, Parameter, Space, ValueRule, make_distribution

_finite = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 6))
_words = st.sampled_from(["a", "b", "c", None, True, False, 1, 2, 0.5, (64, 64), (32,)])


@st.composite
def _ranges(draw, low, high, integers=False):
    one = draw(st.integers(low, high) if integers else st.floats(low, high))
    other = draw(st.integers(low, high) if integers else st.floats(low, high))
    return {"min": min(one, other), "max": max(one, other)}


def _kind(kind, ranges, zero=True):
    extras = st.fixed_dictionaries(
        {}, optional={"zero": st.sampled_from([0.1, 0.5])} if zero else {}
    )

    def join(bounds, chance):
        # A chance of zero needs a range, and one of integers without 0.
        legal = bounds["min"] < bounds["max"]
        legal = legal and ("int" not in kind or not bounds["min"] <= 0 <= bounds["max"])
        return {**bounds, **(chance if legal else {}), "distribution": kind}

    return st.builds(join, ranges, extras)


distributions = st.one_of(
    _kind("uniform", _ranges(-1e3, 1e3)),
    _kind("log_uniform", _ranges(1e-6, 1e3)),
    _kind("int_uniform", _ranges(-50, 50, integers=True)),
    _kind("log_int_uniform", _ranges(1, 500, integers=True)),
    _kind("one_minus_log", _ranges(0.0, 0.99999), zero=False),
    _kind("logit", _ranges(1e-5, 0.99999), zero=False),
    st.builds(
        lambda a, b: {"min": 2 ** min(a, b), "max": 2 ** max(a, b), "distribution": "pow2"},
        st.integers(0, 12),
        st.integers(0, 12),
    ),
    st.builds(lambda m, s: {"mu": m, "sigma": s}, _finite, st.floats(0.01, 10)),
    st.builds(
        lambda low, q, n: {"min": low, "max": low + q * n, "q": q, "distribution": "uniform"},
        st.integers(-5, 5).map(float),
        st.sampled_from([0.05, 0.1, 0.25, 1.0, 3.0]),
        st.integers(2, 40),
    ),
    st.builds(
        lambda values, kind: {"values": values, "distribution": kind},
        st.lists(_words, min_size=1, max_size=5, unique_by=repr),
        st.sampled_from(["categorical", "ordinal"]),
    ),
).map(make_distribution)


@st.composite
def spaces(draw, names=("p0", "p1", "p2", "p3", "p4", "p5")):
    """Spaces with chains of conditions and, sometimes, a rule."""
    parameters = []
    for index, name in enumerate(draw(st.permutations(names))[: draw(st.integers(1, len(names)))]):
        when = ()
        if index and draw(st.booleans()):
            parent = draw(st.sampled_from(parameters))
            choices = list(parent.distribution.grid(3))
            wanted = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=2, unique=True))
            when = (Condition(parent.name, tuple(wanted)),)
        distribution = draw(distributions)
        parameters.append(Parameter(name, distribution, distribution.middle(), when))
    rules = ()
    if draw(st.booleans()):
        parameter = draw(st.sampled_from(parameters))
        rules = (ValueRule(((parameter.name, (list(parameter.distribution.grid(3))[-1],)),)),)
    return Space(tuple(draw(st.permutations(parameters))), rules)
