"""How a program is written for the devices that it is compiled for; what it learns is the same.

One value that a plan holds from the moment a `Program` is made, so that nothing asks for the
devices later. Programs of the two backends differ in the rounding of a few sums, no more.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CPU", "GPU", "Backend", "backend_of"]


@dataclass(frozen=True)
class Backend:
    """The choices.

    Attributes:
        branches: resets and bootstrap values are behind real conditionals, which skip them in
            steps where no episode ends. On a GPU thousands of environments leave few such steps,
            and a conditional costs as much as three kernels.
        one_record: the numbers of a step are written as one array, and episodes summed for each
            environment, so that fewer kernels end a step.
        advantage_unroll: steps of advantages that one iteration of their loop does.
        refill_batch: lanes that are started side by side.
        packs_observations: spectra of optical networks are kept a bit a slot where a study leaves
            their form open; networks see the same numbers.
        unrolls_steps: short loops inside a step of an optical environment are written out, where
            each of their turns would be launched by itself.
        joins_biases: gradients of a layer's kernel and bias are one product, where it has fewer
            inputs than outputs.
        splits_wide_products: products of very wide inputs, or for very many actions, in float32
            are six of parts in bfloat16, which tensor cores multiply; what they give has float32's
            digits.
        reads_flags: a perceptron's first layers read packed spectra as bytes, which are exact in
            bfloat16: three products make float32's digits where two of floats need six.
        sums_first: norms of gradients are summed before anything is written from them, so that
            what is written takes the place of what was read.
        selects_actions: the log probability of an action is summed out of all, so that nothing
            is scattered.
        cast_once: parameters in a network's own precision are made once for a whole rollout.
        values_after: values are computed after a rollout, for many steps at once, so that a
            critic's weights are not read in every one of them.
    """

    branches: bool = True
    one_record: bool = False
    advantage_unroll: int = 1
    refill_batch: int = 1
    packs_observations: bool = False
    unrolls_steps: bool = False
    joins_biases: bool = False
    sums_first: bool = False
    selects_actions: bool = False
    splits_wide_products: bool = False
    reads_flags: bool = False
    cast_once: bool = False
    values_after: bool = False


CPU = Backend()
GPU = Backend(
    branches=False,
    one_record=True,
    advantage_unroll=16,
    refill_batch=64,
    packs_observations=True,
    unrolls_steps=True,
    joins_biases=True,
    sums_first=True,
    selects_actions=True,
    splits_wide_products=True,
    reads_flags=True,
    cast_once=True,
    values_after=True,
)


def backend_of(platform: str) -> Backend:
    """Return how programs are written for a platform of jax.

    >>> backend_of("cpu") == CPU, backend_of("gpu").refill_batch
    (True, 64)
    """
    return CPU if platform == "cpu" else GPU
