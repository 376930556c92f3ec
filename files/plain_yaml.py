"""Reads YAML written by other programs."""

from __future__ import annotations

import re

import yaml

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


class PlainLoader(yaml.SafeLoader):
    """Loads plain YAML; `1e-4` is a number, and PyYAML's tuples are the only tags accepted."""


_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+\Z")
PlainLoader.add_constructor("tag:yaml.org,2002:python/tuple", yaml.SafeLoader.construct_yaml_seq)
PlainLoader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789"))
