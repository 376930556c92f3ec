"""The GPU program without a GPU: it lowers, and its loops stay as short as they were made.

What compiles for an H100 needs the extra `cuda_aot`, and is left out where that is missing.
"""

import gzip
import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SLOW = pytest.mark.slow
KINDS = [
    "cartpole_512",
    *(pytest.param(name, marks=SLOW) for name in
      ("pendulum", "minatar_cnn", "lstm", "rmsa_packed", "deeprmsa", "gnn", "transformer")),
]  # fmt: skip
# case -> most launches of an env step, a gradient step and all advantages of an update
MOST = {"cartpole_512": (18, 58, 32), "rmsa_packed": (80, 68, 24)}


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


@SLOW
@pytest.mark.skipif(not _wheels(), reason="needs the extra cuda_aot")
@pytest.mark.parametrize("name", MOST)
def test_loops_stay_short_and_memory_is_as_estimated(cases, name, tmp_path):
    import gpu_compiled
    import gpu_cost

    folder = gpu_compiled.folder_of(name, "h100", {}, tmp_path, None)
    made = gpu_cost.measured(folder, cases.TARGETS / "h100.txtpb")
    loops = made["loops"]
    env, step, gae = (loops[role] for role in ("env step", "gradient step", "advantages"))
    seen = (env["launches"], step["launches"], gae["launches"] * gae["iterations_per_update"])
    assert all(0 < one <= most for one, most in zip(seen, MOST[name], strict=True)), seen
    for role in (env, step, gae):
        assert role["waits"] == role["library_calls"] == role["conditionals"] == 0
    assert loops["refill"]["launches"] <= 60
    taken = made["arguments_mb"] + made["temporaries_mb"]
    assert taken <= made["estimate_mb"] <= 1.3 * taken


def test_counts_are_read_from_what_the_compiler_leaves(cases, tmp_path):
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
    for name, text in (("program.hlo", program), ("thunk_metadata", notes),
                       ("thunk_sequence_after_thunk_passes", sequence)):  # fmt: skip
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
