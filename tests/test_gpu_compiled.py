"""The GPU program without a GPU: it lowers, and its loops stay as short as they were made.

What compiles for an H100 needs the extra `cuda_aot`, and is left out where that is missing.
"""

import dataclasses
import gzip
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SLOW = pytest.mark.slow
LESS = {
    "deeprmsa": {"hidden_sizes": (128, 128)},
    "gnn": {"gnn_message_passing_steps": 1, "gnn_edge_mlp_layers": 1, "gnn_node_mlp_layers": 1},
}
"""Fewer layers for programs that are lowered alone: more are the same again."""
KINDS = [
    "cartpole_512",
    *(
        pytest.param(name, marks=SLOW)
        for name in (
            "pendulum",
            "minatar_cnn",
            "lstm",
            "rmsa_packed",
            "deeprmsa",
            "gnn",
            "transformer",
        )
    ),
]


class Most(NamedTuple):
    """The most launches of each loop: of one iteration; of an update; of a batch of refills."""

    env_step: int
    gradient_step: int
    advantages: int
    refill: int
    library_calls: int = 0  # of an env step


MOST = {
    "cartpole_512": Most(13, 46, 32, 42),
    "cartpole_512/a100": Most(17, 45, 32, 43),
    "cartpole_512/rtx4090": Most(14, 46, 32, 43),
    "cartpole_8_gpus": Most(13, 50, 32, 44),
    "cartpole": Most(19, 46, 32, 42),
    "pendulum": Most(14, 40, 32, 41),
    "minatar_cnn": Most(33, 54, 32, 54),
    "lstm": Most(26, 5993, 32, 56),
    "rmsa_packed": Most(53, 63, 24, 53),
    "rmsa_packed/rtx4090": Most(56, 60, 24, 51),
    "rmsa_packed_tf32": Most(53, 63, 24, 53),
    "rmsa_flat": Most(49, 54, 24, 53),
    "rmsa_paths": Most(58, 52, 24, 54),
    "deeprmsa": Most(49, 80, 24, 72),
    "gnn": Most(147, 786, 24, 283),
    "transformer": Most(92, 289, 24, 123),
    "brax": Most(4998, 39, 32, 109, library_calls=1),  # the solver of its constraints
}
ROWS = json.loads((BENCHMARKS / "gpu_compiled.json").read_text())
AFTER = sorted(name for name, row in ROWS.items() if row["label"] != "before")


@pytest.fixture
def cases(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_cases

    yield gpu_cases
    for name in ("gpu_cases", "gpu_compiled", "gpu_cost", "gpu_hlo"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_program_lowers_for_cuda(cases, name):
    import jax
    from jax import export

    from hpo.core.population import advance_function, lane_mesh

    case = cases.CASES[name]
    if case.env.startswith("brax:"):
        pytest.importorskip("brax")
    case = dataclasses.replace(case, knobs={**case.knobs, **LESS.get(name, {})})
    plan, example = cases.plan_of(case)
    assert plan.backend.refill_batch > 1
    function = advance_function(plan, lane_mesh(jax.devices()[:1]), 8, 1)
    made = export.export(function, platforms=["cuda"])(*cases.shapes_of(plan, example, 16), None)
    text = str(made.mlir_module())
    assert made.platforms == ("cuda",) and "stablehlo.while" in text
    assert "lapack" not in text  # whose kernels a GPU does not have


def _wheels():
    try:
        found = {metadata.version(name) for name in ("jax-cuda13-plugin", "jax-cuda13-pjrt")}
    except metadata.PackageNotFoundError:
        return False
    return found == {metadata.version("jax")}


def _holds(row, estimate_mb):
    """Hold one row of the table to the numbers above, and the estimate to the compiler's."""
    taken = row["arguments_mb"] + row["temporaries_mb"]
    assert taken <= estimate_mb <= 1.3 * taken, estimate_mb / taken
    loops = row["loops"]
    env, step, gae = (loops[role] for role in ("env step", "gradient step", "advantages"))
    step = step if step["launches"] else loops["epoch"]  # one minibatch: no loop of its own
    advantages = gae["launches"] * gae["iterations_per_update"]
    calls = env["library_calls"]
    seen = Most(env["launches"], step["launches"], advantages, loops["refill"]["launches"], calls)
    most = MOST.get(f"{row['case']}/{row.get('target')}", MOST[row["case"]])
    assert all(one <= top for one, top in zip(seen, most, strict=True)), seen
    assert min(seen[:4]) > 0
    for role in (env, step, gae):
        assert role["waits"] == role["conditionals"] == 0


@pytest.mark.filterwarnings("ignore")  # of brax and of what it imports
@pytest.mark.parametrize("key", AFTER)
def test_gpu_memory_estimates_match_the_compiled_table(cases, key):
    """What was compiled when the table was made, against what is estimated today."""
    from hpo.core.memory import estimate_memory

    row = ROWS[key]
    case = cases.CASES[row["case"]]
    if case.env.startswith("brax:"):
        pytest.importorskip("brax")
    plan, example = cases.plan_of(case)
    estimate = estimate_memory(plan, example, row["lanes"], row["tile"], case.devices)
    _holds(row, estimate / case.devices / 2**20)


@pytest.mark.skipif(not _wheels(), reason="needs the extra cuda_aot")
@pytest.mark.parametrize(
    "name", ["cartpole_8_gpus", pytest.param("rmsa_packed", marks=SLOW)]
)  # half a minute of CPU each
def test_h100_compiled_program_matches_the_table(cases, name, tmp_path):
    import gpu_compiled
    import gpu_cost

    folder = gpu_compiled.folder_of(name, "h100", {}, tmp_path, None)
    made = gpu_cost.measured(folder, cases.TARGETS / "h100.txtpb")
    _holds({"case": name, "label": "now", **made}, made["estimate_mb"])
    assert made["devices"] == cases.CASES[name].devices and made["collectives"] == []


def test_collectives_are_detected_in_hlo(cases):
    import gpu_hlo

    program = """HloModule jit_change

ENTRY %main (x: f32[8,16]) -> f32[64,16] {
  %x = f32[8,16]{1,0} parameter(0)
  %y = s32[8]{0} parameter(1)
  %start = ((f32[8,16]{1,0}, s32[8]{0}), (f32[64,16]{1,0}, s32[64]{0})) all-gather-start(%x, %y), dimensions={0}
  %done = (f32[64,16]{1,0}, s32[64]{0}) all-gather-done(%start)
  %sum = f32[8,16]{1,0} all-reduce(%x), to_apply=%add
  ROOT %out = f32[64,16]{1,0} get-tuple-element(%done), index=0
}
"""  # noqa: E501
    found = gpu_hlo.collectives(program)
    assert [(one.op, one.bytes) for one in found] == [
        ("all-gather", 4 * (64 * 16 + 64)),
        ("all-reduce", 4 * 8 * 16),
    ]


def test_gpu_cost_counts_are_read_from_compiler_output(cases, tmp_path):
    """A loop of four products, with sizes that can be counted by hand."""
    import gpu_cost
    import gpu_hlo

    program = """HloModule jit_local

%fused (a: f32[8,16], b: f32[16,32]) -> f32[8,32] {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16,32]{1,0} parameter(1)
  ROOT %dot.1 = f32[8,32]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (p: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %x = f32[8,16]{1,0} get-tuple-element(%p), index=1
  %w = f32[16,32]{1,0} get-tuple-element(%p), index=2
  %gemm = f32[8,32]{1,0} fusion(%x, %w), kind=kCustom, calls=%fused
  %after = f32[8,32]{1,0} fusion(%gemm), kind=kLoop, calls=%tail
}

ENTRY %main (x: f32[8,16]) -> f32[8,16] {
  %while.1 = (s32[], f32[8,16]) while(%t), condition=%cond, body=%body, metadata={op_name="a/while"}, backend_config={"known_trip_count":{"n":"4"}}
}
"""  # noqa: E501
    sequence = (
        "000: kWhile [source | sink]\n"
        "condition:\n"
        "    001: kCustomKernel [source | sink] compare grid: [1, 1, 1] threads: [1, 1, 1]\n"
        "  body:\n"
        "    000: kCommandBuffer [source | sink]\n"
        "        002: kCustomKernel [source | next=003] gemm grid: [1, 1, 1] threads: [1, 1, 1]\n"
        "        003: kCustomKernel [prev=002 | sink] after grid: [1, 1, 1] threads: [1, 1, 1]\n"
    )
    names = {0: "while.1", 2: "gemm", 3: "after"}
    notes = "".join(
        f'thunk_metadata {{\n  profile_annotation: "{name}"\n  thunk_id: {number}\n}}\n'
        for number, name in names.items()
    )
    about = {"env_steps": 1, "precision": "float32", "epochs": 1, "lanes": 1}
    (tmp_path / "about.json").write_text(json.dumps(about))
    for name, text in (
        ("program.hlo", program),
        ("thunk_metadata", notes),
        ("thunk_sequence_after_thunk_passes", sequence),
    ):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    made = gpu_hlo.Program(tmp_path)
    gemm = made.named["gemm"]
    assert made.products(gemm) == 2 * 8 * 32 * 16
    assert made.traffic(gemm) == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    assert made.longest_chain("body") == 2 and made.named["while.1"].trips == 4
    target = gpu_cost.Target.read(cases.TARGETS / "h100.txtpb")
    model = gpu_cost.Model(made, target, "float32", 1, 0)
    launches = [cost for cost in model.costs() if cost.kind == "launch"]
    assert [cost.times for cost in launches] == [4.0, 4.0]
    moved = 4 * (8 * 16 + 16 * 32 + 8 * 32) / (0.8 * 3352.32e9) * 1e6
    assert launches[0].microseconds == pytest.approx(1.5 + moved)
    assert target.float32 == pytest.approx(66.9e12, rel=1e-3)
    # The same product in six of bfloat16, of which each is priced.
    split = program.replace(
        "rhs_contracting_dims={0}", "rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x6"
    )
    wide = split.replace("[8,16]", "[8000,1600]").replace("[16,32]", "[1600,32000]")
    text = wide.replace("[8,32]", "[8000,32000]")
    (tmp_path / "program.hlo.gz").write_bytes(gzip.compress(text.encode()))
    made = gpu_hlo.Program(tmp_path)
    assert made.parts(made.named["gemm"]) == 6 and made.parts(made.named["after"]) == 0
    model = gpu_cost.Model(made, target, "float32", 1, 0)
    [gemm, _] = [cost for cost in model.costs() if cost.kind == "launch"]
    taken = 6 * 2 * 8000 * 32000 * 1600 / (0.35 * 990e12) * 1e6
    assert gemm.microseconds == pytest.approx(1.5 + taken)
    # One of numbers that are bfloat16 already.
    (tmp_path / "program.hlo.gz").write_bytes(gzip.compress(text.replace("_x6", "").encode()))
    made = gpu_hlo.Program(tmp_path)
    assert made.parts(made.named["gemm"]) == 1
    model = gpu_cost.Model(made, target, "float32", 1, 0)
    [gemm, _] = [cost for cost in model.costs() if cost.kind == "launch"]
    assert gemm.microseconds == pytest.approx(1.5 + taken / 6)
