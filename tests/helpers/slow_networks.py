"""Slow references of the networks: float64 NumPy, one sample and one entity at a time."""

from __future__ import annotations

import math

import jax
import numpy as np
import scipy.special


def as_float64(tree):
    return {
        k: as_float64(v) if isinstance(v, dict) else np.array(v, np.float64)
        for k, v in tree.items()
    }


def drawn(module, *args, seed=3):
    """Return random parameters of a module, biases and norms included; compiles nothing."""
    key = jax.random.key(0, impl="threefry2x32")
    shapes = jax.eval_shape(module.init, key, *args).get("params", {})
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape, scale=0.4).astype(np.float32), shapes)


def dense(layer, x):
    y = x @ layer["kernel"]
    return y + layer["bias"] if "bias" in layer else y


def head(layer, x):
    return layer["kernel"] @ x + layer["bias"]


def norm(layer, x):
    return (x - x.mean()) / math.sqrt(x.var() + 1e-6) * layer["scale"] + layer["bias"]


def relu(x):
    return np.maximum(x, 0.0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return scipy.special.expit(x)


def softmax(x):
    raised = np.exp(x - x.max())
    return raised / raised.sum()


# convolutions


def convolution(layer, image, kernel, stride):
    """Return one image convolved, pixel by pixel; kernels are stored as [kernel^2 C, C2]."""
    height, width, channels = image.shape
    weights = layer["patches"]["kernel"].reshape(kernel, kernel, channels, -1)
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    made = np.zeros((rows, columns, weights.shape[-1]))
    for row in range(rows):
        for column in range(columns):
            for i in range(kernel):
                for j in range(kernel):
                    pixel = image[row * stride + i, column * stride + j]
                    made[row, column] += pixel @ weights[i, j]
    return made + layer["patches"]["bias"]


# graphs


def processor(layers, x, activation=relu):
    count = 0
    while f"dense_{count}" in layers:
        x = dense(layers[f"dense_{count}"], x)
        if f"norm_{count}" in layers:
            x = norm(layers[f"norm_{count}"], x)
        x = activation(x)
        count += 1
    if "bias" not in layers["out"]:  # the logit of an attention
        return layers["out"]["kernel"] @ x
    return dense(layers["out"], x)


def added(net, name, total):
    return norm(net[name], total) if name in net else total


def messages(net, edges, nodes, graph, senders, receivers, rounds, sees_graph=True):
    """Return (edges, graph) behind the rounds, one edge and one node at a time."""
    e = [dense(net["embed_edges"], x) for x in edges]
    n = [dense(net["embed_nodes"], x) for x in nodes]
    g = (
        dense(net["embed_graph"], graph)
        if sees_graph
        else np.zeros(net["graph_0"]["out"]["bias"].shape)
    )
    for r in range(rounds):
        ends = [(n[s], n[t]) for s, t in zip(senders, receivers, strict=True)]
        new = [
            processor(net[f"edges_{r}"], np.concatenate([x, s, t, g]))
            for x, (s, t) in zip(e, ends, strict=True)
        ]
        e = [added(net, f"edge_norm_{r}", x + y) for x, y in zip(e, new, strict=True)]
        if f"nodes_{r}" not in net:
            return e, g
        weights = np.ones(len(e))
        if f"attention_{r}" in net:
            logits = np.array(
                [
                    processor(net[f"attention_{r}"], np.concatenate([m, s, t, g]))[0]
                    for m, (s, t) in zip(new, ends, strict=True)
                ]
            )
            for node in range(len(n)):
                into = [i for i, t in enumerate(receivers) if t == node]
                weights[into] = softmax(logits[into]) if into else 1.0
        weighted = [w * m for w, m in zip(weights, new, strict=True)]
        nothing = np.zeros_like(new[0])
        updates = []
        for node in range(len(n)):
            sent = sum((weighted[i] for i, s in enumerate(senders) if s == node), nothing)
            got = sum((weighted[i] for i, t in enumerate(receivers) if t == node), nothing)
            updates.append(processor(net[f"nodes_{r}"], np.concatenate([n[node], sent, got, g])))
        n = [added(net, f"node_norm_{r}", x + y) for x, y in zip(n, updates, strict=True)]
        change = processor(
            net[f"graph_{r}"], np.concatenate([np.mean(updates, 0), np.mean(new, 0), g])
        )
        g = added(net, f"graph_norm_{r}", g + change)
    return e, g


# attention


def turned(x, angles):
    half = len(x) // 2
    out = np.array(x)
    for i, a in enumerate(angles):
        out[i] = x[i] * math.cos(a) - x[i + half] * math.sin(a)
        out[i + half] = x[i] * math.sin(a) + x[i + half] * math.cos(a)
    return out


def attention(layers, tokens, heads, positions=None):
    """Return what each token gathers, head by head and pair by pair."""
    width = tokens.shape[-1]
    depth = width // heads
    q, k, v = (
        np.array([dense(layers[name], t) for t in tokens]) for name in ("query", "key", "value")
    )
    found = np.zeros_like(tokens)
    for h in range(heads):
        part = slice(h * depth, (h + 1) * depth)
        qs, ks = [x[part] for x in q], [x[part] for x in k]
        if positions is not None:
            angles = [p @ layers["angles"]["kernel"] for p in positions]
            qs = [turned(x, a) for x, a in zip(qs, angles, strict=True)]
            ks = [turned(x, a) for x, a in zip(ks, angles, strict=True)]
        for i, query in enumerate(qs):
            weights = softmax(np.array([query @ key for key in ks]) / math.sqrt(depth))
            found[i, part] = sum(w * v[j, part] for j, w in enumerate(weights))
    return np.array([dense(layers["out"], x) for x in found])


def blocks(layers, tokens, heads, count, positions=None):
    for i in range(count):
        seen = np.array([norm(layers[f"attention_norm_{i}"], t) for t in tokens])
        tokens = tokens + attention(layers[f"attention_{i}"], seen, heads, positions)
        for place, t in enumerate(tokens):
            hidden = gelu(dense(layers[f"forward_in_{i}"], norm(layers[f"forward_norm_{i}"], t)))
            tokens[place] = t + dense(layers[f"forward_out_{i}"], hidden)
    return np.array([norm(layers["norm"], t) for t in tokens])


def hidden(layers, x, activation=relu):
    count = 0
    while f"dense_{count}" in layers:
        x = activation(dense(layers[f"dense_{count}"], x))
        count += 1
    return x


def pooled(kind, items, layers=None):
    items = np.asarray(items)
    if kind == "sum":
        return items.sum(0)
    if kind == "mean":
        return items.mean(0)
    if kind == "min_mean_max":
        return np.concatenate([items.min(0), items.mean(0), items.max(0)])
    return softmax(items @ layers["query"]) @ items


# memory


def cell(kind, layers, memory, x):
    size = layers["over"].shape[0]
    if kind == "lstm":
        c, h = memory
        i, f, g_out, new = np.split(x @ layers["into"] + layers["bias"] + h @ layers["over"], 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(new)
        return c, sigmoid(g_out) * np.tanh(c)
    ready, over = x @ layers["into"] + layers["bias"], memory @ layers["over"]
    r = sigmoid(ready[:size] + over[:size])
    z = sigmoid(ready[size : 2 * size] + over[size : 2 * size])
    n = np.tanh(ready[2 * size :] + r * (over[2 * size :] + layers["over_bias"]))
    return (1.0 - z) * n + z * memory
