"""XLRON's flags of environments: traffic, topology, spectrum; and those of kinds that we lack."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from .rows import Row, left, refused, taken
from .values import NoCounterpart, Parsed, Settings, Words

__all__ = ["ENVIRONMENT"]

_TABLES = {
    "modulations_deeprmsa": "deeprmsa",
    "modulations": "full",
    "modulations_gn_model": "gn_model",
    "pcs_64qam": "pcs_64qam",
}
"""Stem of a table that XLRON ships -> its name here."""
_RINGS = {"4node": "ring4", "7node": "ring7"}
_GN = "the physical layer (GN model) is not simulated here"
_VONE = "virtual networks are not simulated here"


def _topology(value: Any) -> Settings:
    """Read a name; the endings _directed and _undirected are the key `directed` here."""
    name = str(value)
    for ending, directed in (("_undirected", False), ("_directed", True)):
        if name.endswith(ending):
            plain = name.removesuffix(ending)
            return Settings({"env.topology": _RINGS.get(plain, plain), "env.directed": directed})
    return Settings({"env.topology": _RINGS.get(name, name)})


def _bitrates(value: Any) -> list[float] | None:
    """Read `100,400`."""
    if value in (None, ""):
        return None
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    try:
        return [float(part) for part in parts if str(part).strip()]
    except ValueError:
        raise NoCounterpart("allowed: numbers with commas between, such as 100,400") from None


def _modulation(value: Any) -> str:
    """Read a path; the tables that XLRON ships have names here."""
    path = PurePath(str(value))
    return _TABLES.get(path.stem, str(value)) if path.suffix == ".csv" else str(value)


_TRAFFIC = (
    taken("load", "env.load", 250.0),
    taken("mean_service_holding_time", "env.mean_holding_time", 25.0),
    taken("truncate_holding_time", "env.truncate_holding_time", False),
    taken("values_bw", "env.bitrates", values=
          Parsed(_bitrates, "numbers with commas between; none: the range of min_bw to max_bw")),
    taken("min_bw", "env.min_bitrate", 25),
    taken("max_bw", "env.max_bitrate", 100),
    taken("step_bw", "env.step_bitrate", 1),
    taken("random_traffic", "env.traffic_matrix", False,
          Words({True: "random", False: "uniform"})),
    taken("custom_traffic_matrix_csv_filepath", "env.traffic_matrix"),
    taken("continuous_operation", "env.continuous", False),
    taken("max_requests", "env.max_requests", 4),
    taken("ENV_WARMUP_STEPS", "env.warmup_requests", 0),
    taken("incremental_loading", "env.incremental", False),
    taken("end_first_blocking", "env.end_first_blocking", False),
    taken("traffic_requests_csv_filepath", "env.requests"),
    taken("include_no_op", "env.no_op", False),
    taken("reward_type", "env.reward", "service"),
    *refused("one study has one load, or searches env.load: give it under `space`",
             "min_load", "max_load", "step_load", harmless=(None,)),
    *refused("requests drawn in advance from a list have no counterpart; give a CSV file of "
             "requests (traffic_requests_csv_filepath)", "deterministic_requests",
             "list_of_requests"),
    taken("traffic_intensity", "env.load", values=Words({0: Settings()})),
    *left("times are relative here as well", "relative_arrival_times"),
    *left("paths are not packed here", "pack_path_bits"),
    *left("has no effect there", "maximise_throughout"),
    *refused("the end of an episode by max_requests is a truncation", "terminate_on_episode_end"),
    *refused("warm-up takes the policy's own actions", "warmup_action_type", harmless=(None,)),
    *left("a heuristic is evaluated by `hpo eval --heuristic`", "path_heuristic",
          "node_heuristic"),
    *left("set env.histograms", "log_actions", "log_path_lengths"),
)  # fmt: skip

_NETWORK = (
    taken("env_type", "env", "rmsa",
          Words({name: NoCounterpart(because) for name, because in (
              ("rsa_gn_model", _GN), ("rmsa_gn_model", _GN), ("vone", _VONE),
              ("rsa_multiband", "several bands are not simulated here"))})),
    taken("topology_name", "env.topology", "4node",
          Parsed(_topology, "the ending _directed or _undirected is env.directed; 4node and "
                            "7node are ring4 and ring7")),
    taken("k", "env.k", 5),
    taken("link_resources", "env.slots", 5),
    taken("slot_size", "env.slot_width", 12.5),
    taken("guardband", "env.guardband", 1),
    taken("aggregate_slots", "env.aggregate_slots", 1),
    taken("disjoint_paths", "env.disjoint_paths", False),
    taken("path_sort_criteria", "env.path_order", "spectral_resources"),
    taken("modulations_csv_filepath", "env.modulation",
          "./xlron/data/modulations/modulations_deeprmsa.csv",
          Parsed(_modulation, "the tables that XLRON ships by their names: " + ", ".join(
              f"{stem}.csv is {name}" for stem, name in _TABLES.items()))),
    taken("scale_factor", "env.scale_factor", 1.0),
    *left("has no effect there", "symbol_rate"),
    *refused("all candidate paths are kept, however long", "maximum_path_length_km",
             harmless=(None,)),
    *refused("name the file itself: -- --topology_name FILE.json", "topology_directory",
             harmless=(None,)),
    *refused("a study has one topology", "multiple_topologies_directory", harmless=(None,)),
)  # fmt: skip

_CAPACITY = "capacities of lightpaths follow from fixed constants of the fibre here"
_FIBRE = tuple(
    row
    for name, default in (
        ("alpha", 0.2), ("beta_2", -21.7), ("gamma", 1.2), ("span_length", 100),
        ("lambda0", 1550),
    )
    for row in refused(_CAPACITY, name, harmless=(default,))
)  # fmt: skip

_OTHER_KINDS: tuple[Row, ...] = (
    *left("belongs to virtual networks, which are not simulated here", "node_resources",
          "virtual_topologies", "min_node_resources", "max_node_resources", "node_probs"),
    *left("belongs to the physical layer (GN model), which is not simulated here",
          "calc_minimum_osnr", "beta_fec", "fec_rate", "span_lumped_loss_db", "ref_lambda",
          "max_power_per_fibre", "power_per_channel", "power_per_channel_per_band",
          "launch_power_csv", "launch_power_type", "nonlinear_coefficient", "raman_gain_slope",
          "attenuation", "attenuation_bar", "dispersion_coeff", "dispersion_slope", "coherent",
          "mod_format_correction", "interband_gap_width", "interband_gap_start",
          "enforce_band_gaps", "snr_margin", "max_snr", "min_snr", "max_power", "min_power",
          "step_power", "discrete_launch_power", "min_concentration", "max_concentration",
          "last_fit", "GNN_OUTPUT_LP", "GNN_OUTPUT_RSA", "noise_data_filepath",
          "band_data_filepath", "band_preference", "slots_per_band", "inter_band_gap_ghz",
          "uniform_spans", "num_subchannels", "use_raman_amp", "raman_pump_power_fw",
          "raman_pump_power_bw", "raman_pump_freq_fw", "raman_pump_freq_bw",
          "raman_max_bandwidth_thz"),
)  # fmt: skip

ENVIRONMENT = (*_TRAFFIC, *_NETWORK, *_FIBRE, *_OTHER_KINDS)
