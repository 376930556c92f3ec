"""A saved policy in NumPy and ONNX form; both are checked against the policy's actions.

The NumPy form is one JSON file for `forward.py`. An ONNX model takes raw observations [batch, ...]
and returns the most likely actions.
"""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, HpoError, MissingExtraError
from ...files.atomic_files import new_folder, write_text
from ...store.codec import finite_json
from ...studies.user_code import import_user_code
from . import forward

FILE = "policy.json"
_OBSERVATIONS, _CLOSE = 16, 1e-3
_OPSET, _FORMAT = 20, 9  # the first opset with Gelu, from 2023, which onnxruntime 1.17 supports
_OPERATORS = {"leaky_relu": "LeakyRelu", "silu": "Sigmoid"}  # others have the same names
_ATTRIBUTES = {"gelu": {"approximate": "tanh"}, "leaky_relu": {"alpha": 0.01}}


def export(policy: Path, to: Path) -> str:
    """Write a policy for NumPy to a new folder; return why it cannot be converted, or ""."""
    about = describe(policy, "NumPy needs an mlp", ("mlp",))
    if isinstance(about, str):
        return about
    new_folder(to)
    shutil.copyfile(forward.__file__, to / "forward.py")
    write_text(to / FILE, json.dumps(about, allow_nan=False))
    return difference(to / FILE)


def describe(policy: Path, allowed: str, networks: Sequence[str]) -> dict[str, Any] | str:
    """Return a policy with a supported network as plain data, or why it cannot be converted."""
    if not (policy / FILE).is_file():
        return "it belongs to a custom training class or to several environments"
    from ...core.policy_document import read_document

    try:
        document = read_document(policy / FILE)
        network, dtype = document.config.get("network"), document.config.get("dtype")
        if network not in networks or dtype != "float32":
            return f"it is a {network} in {dtype}; {allowed} in float32"
        about = _policy_description(policy, document.imports)
    except HpoError as error:  # damaged, or its environment is not installed
        return str(error).replace(f"{policy}/", "")
    return about or "it has a custom distribution, or its observations are not a single array"


def _policy_description(policy: Path, imports: Sequence[str]) -> dict[str, Any] | None:
    import_user_code(imports, policy / "imports")  # as in its training
    from ...core.envs import registry
    from ...core.policy import action_range, component_sizes, distribution_kind
    from ...core.pytree import named_leaves
    from ...core.saved_policy import load_policy
    from ...machine.devices import prepare_devices

    prepare_devices()
    saved = load_policy(policy)
    plan, env = saved.plan, registry.make(saved.plan.env)
    kind, struct = distribution_kind(plan, env), env.observation_struct
    if kind not in forward.KINDS or not hasattr(struct, "shape"):
        return None
    arrays = {n: np.asarray(x) for n, x in named_leaves(saved.params).items() if "critic" not in n}
    given: Any = np.random.default_rng(0).standard_normal((_OBSERVATIONS, *struct.shape))
    if saved.config["normalise_observations"]:
        arrays["mean"] = np.asarray(saved.statistics.mean)
        arrays["std"] = np.asarray(saved.statistics.std())
        given = arrays["mean"] + arrays["std"] * given
    given = np.asarray(given).astype(struct.dtype)
    ranged = kind in ("tanh_gaussian", "beta")
    ranged |= kind == "gaussian" and (plan.action_low, plan.action_high) != (None, None)
    space: Any = env.action_space
    ends: Sequence[Any] = ()
    if ranged:
        ends = action_range(plan, space)
    return {
        "observation": list(struct.shape),
        "config": finite_json(dict(saved.config)),
        "distribution": kind,
        "sizes": list(component_sizes(env) or arrays["actor_head/bias"].shape),
        "range": [end.tolist() for end in ends],
        "action": list(getattr(space, "shape", ())),
        "arrays": {name: array.astype(np.float64).tolist() for name, array in arrays.items()},
        "observations": given.tolist(),
        "actions": np.asarray(saved.act(given, None, None, None)[0]).tolist(),
    }


def difference(path: Path) -> str:
    """Return how NumPy's actions differ from the recorded ones, or ""."""
    try:
        played = forward.Policy(path)
        now, then = played.act(played.about["observations"]), np.array(played.about["actions"])
        worst = float(np.max(np.abs(then.astype(np.float64) - now)))
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        return f"{FILE} was not written by hpo: {error}"
    if worst <= _CLOSE:
        return ""
    return f"NumPy's actions differ by {worst:.3g} from those recorded"


def model_of(policy: Path) -> bytes:
    """Return an MLP or CNN as an ONNX file, after comparing it with the policy's actions.

    Raises `ConfigError` if the policy cannot be converted, and `MissingExtraError` if onnx is not
    installed.
    """
    try:
        reference: Any = importlib.import_module("onnx.reference")
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "hpo best --onnx") from error
    about = describe(policy, "ONNX needs an mlp or a cnn", ("mlp", "cnn"))
    if isinstance(about, str):
        raise ConfigError(f"--onnx cannot convert this policy: {about}")
    graph = _Graph(about, policy)
    model, given = graph.model(), np.asarray(about["observations"], graph.dtype)
    (actions,) = reference.ReferenceEvaluator(model).run(None, {"observation": given})
    worst = float(np.max(np.abs(actions - np.asarray(about["actions"], np.float64))))
    if not worst <= _CLOSE:
        raise HpoError(f"the ONNX model's actions differ by {worst:.3g} from the policy's")
    return model.SerializeToString()


class _Graph:
    def __init__(self, about: dict[str, Any], policy: Path):
        from ...core.envs import registry
        from ...core.saved_policy import load_policy

        self._onnx: Any = importlib.import_module("onnx")
        self._about, self._config, self._kind = about, about["config"], about["distribution"]
        self._arrays = {n: np.asarray(x, np.float32) for n, x in about["arrays"].items()}
        self._plan = load_policy(policy).plan
        env: Any = registry.make(self._plan.env)
        if env.has_mask:
            raise ConfigError("--onnx cannot convert this policy: its environment masks actions")
        self.dtype = np.dtype(env.observation_struct.dtype)
        self._nodes, self._constants = list[Any](), list[Any]()

    def model(self) -> Any:
        """Return the whole model, for batches of any size."""
        helper, action, about = self._onnx.helper, self._add_mode(self._add_network()), self._about
        self._nodes.append(helper.make_node("Identity", [action], ["action"]))
        types, value = self._onnx.TensorProto, helper.make_tensor_value_info
        given = helper.np_dtype_to_tensor_dtype(self.dtype)
        taken = types.FLOAT
        if self._kind in ("categorical", "multi_discrete"):
            taken = types.INT64
        one = value("observation", given, ["batch", *about["observation"]])
        two = value("action", taken, ["batch", *np.shape(about["actions"])[1:]])
        graph = helper.make_graph(self._nodes, "policy", [one], [two], self._constants)
        opsets = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_FORMAT)

    def _add_node(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node whose inputs are names or constants; return the name of its output."""
        names = [
            given if isinstance(given, str) else self._add_constant(given) for given in inputs
        ]
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, names, [output], **attributes))
        return output

    def _add_constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add_network(self) -> str:
        config, arrays, add = self._config, self._arrays, self._add_node
        x = add("Cast", "observation", to=self._onnx.TensorProto.FLOAT)
        if config["normalise_observations"]:
            clip = np.float32(config["observation_clip"])
            x = add("Div", add("Sub", x, arrays["mean"]), arrays["std"])
            x = add("Clip", x, -clip, clip)
        elif self._plan.network == "cnn" and self.dtype == np.uint8:
            x = add("Mul", x, np.float32(1.0 / 255.0))
        tower = "actor"
        if config["shared_encoder"]:
            tower = "encoder"
        if self._plan.network == "cnn":
            x = self._add_convolutions(x, tower)
        x = add("Flatten", x)
        layers = sum(f"{tower}/dense_{number}/kernel" in arrays for number in range(len(arrays)))
        for number in range(layers):
            name = f"{tower}/dense_{number}"
            x = add("Gemm", x, arrays[f"{name}/kernel"], arrays[f"{name}/bias"])
            x = self._add_activation(x, f"{tower}/norm_{number}")
        return add("Gemm", x, arrays["actor_head/kernel"], arrays["actor_head/bias"], transB=1)

    def _add_convolutions(self, x: str, tower: str) -> str:
        """Add all convolutions of images [batch, H, W, C]; return the name of their output."""
        from ...core.networks.cnn import convolutions_of, is_stacked

        add, shape = self._add_node, [*self._about["observation"], 1]
        if is_stacked(tuple(shape[:-1]), self._plan.env.history > 1):
            x = add("Reshape", x, np.array([-1, *shape[:4]]))  # frames first
            x = add("Transpose", x, perm=[0, 2, 3, 1, 4])
            shape = [shape[1], shape[2], shape[0] * shape[3]]
        x = add("Reshape", x, np.array([-1, *shape[:3]]))
        sizes = convolutions_of(self._plan, *shape[:2])
        for i, (kernel, stride) in enumerate(zip(sizes.kernels, sizes.strides, strict=True)):
            name = f"{tower}/convolution_{i}/patches"
            patches, bias = self._arrays[f"{name}/kernel"], self._arrays[f"{name}/bias"]
            weights = patches.reshape(kernel, kernel, -1, len(bias)).transpose(3, 2, 0, 1)
            x = add("Transpose", x, perm=[0, 3, 1, 2])
            x = add("Conv", x, weights, bias, strides=[stride, stride])
            x = add("Transpose", x, perm=[0, 2, 3, 1])
            x = self._add_activation(x, f"{tower}/convolution_norm_{i}")
        return x

    def _add_activation(self, x: str, norm: str) -> str:
        name, arrays = self._config["activation"], self._arrays
        if self._config["layer_norm"]:
            scale, bias = arrays[f"{norm}/scale"], arrays[f"{norm}/bias"]
            x = self._add_node("LayerNormalization", x, scale, bias, epsilon=1e-6)
        y = self._add_node(_OPERATORS.get(name) or name.title(), x, **_ATTRIBUTES.get(name, {}))
        if name != "silu":
            return y
        return self._add_node("Mul", x, y)

    def _slice_columns(self, x: str, begin: int, end: int) -> str:
        return self._add_node("Slice", x, np.array([begin]), np.array([end]), np.array([1]))

    def _add_mode(self, x: str) -> str:
        about, add = self._about, self._add_node
        if self._kind in ("categorical", "multi_discrete"):
            ends = itertools.pairwise(np.cumsum([0, *about["sizes"]]).tolist())
            best = [add("ArgMax", self._slice_columns(x, *part), axis=1) for part in ends]
            chosen = add("Concat", *best, axis=1)
            if self._kind == "multi_discrete":
                return chosen
            return add("Squeeze", chosen, [1])
        low, high = np.asarray(about["range"] or [[-np.inf], [np.inf]], np.float32)
        if self._kind == "gaussian":
            x = add("Min", add("Max", x, low), high)
        else:
            if self._kind == "beta":
                x = add("Add", add("Softplus", x), np.float32(1.0))
                alpha = self._slice_columns(x, 0, len(low))
                both = add("Add", alpha, self._slice_columns(x, len(low), 2 * len(low)))
                share = add("Div", alpha, both)
            else:
                half = np.float32(0.5)
                share = add("Add", add("Mul", add("Tanh", x), half), half)
            x = add("Add", add("Mul", share, high - low), low)
        return add("Reshape", x, np.array([-1, *about["action"]]))
