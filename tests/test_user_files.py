"""Files that a user names, each wrong in another way: one line, whatever is asked of them."""

import os

import pytest

from hpo.core.envs.optical.modulation import make_modulation
from hpo.core.envs.optical.topology import make_topology
from hpo.core.envs.optical.traffic_files import read_requests, read_traffic_matrix
from hpo.core.saved_policy import load_policy
from hpo.errors import ConfigError, HpoError, StudyError
from hpo.files.plain_data import parse_json
from hpo.spaces.via_configspace import read_configspace
from hpo.studies import load

NETWORK = make_topology("nsfnet_deeprmsa", True)
READERS = {
    "topology.json": lambda path: make_topology(str(path), True),
    "topology.graphml": lambda path: make_topology(str(path), True),
    "modulation.csv": lambda path: make_modulation(str(path)),
    "matrix.csv": lambda path: read_traffic_matrix(str(path), NETWORK),
    "requests.csv": lambda path: read_requests(str(path), NETWORK),
    "space.json": read_configspace,
    "space.yaml": read_configspace,
    "study.yaml": load,
}
WRONG = {
    "empty": b"",
    "deep": b"[" * 20_000,
    "not UTF-8": b"name,\xff\xfe\n",
    "a byte of zero": b"a\x00b,c\n",
    "a long cell": b'"' + b"x" * 200_000 + b'"\n',
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_user_files_get_one_line_errors(tmp_path, name, wrong):
    path = tmp_path / name
    path.write_bytes(WRONG[wrong])
    with pytest.raises(HpoError) as found:
        READERS[name](path)
    assert str(path) in str(found.value) and len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize("name", READERS)
def test_named_pipe_as_user_file_is_refused(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises((ConfigError, StudyError), match=r"is not a regular file|is a pipe"):
        READERS[name](path)


def test_too_deeply_nested_policy_json_is_refused(tmp_path):
    (tmp_path / "policy.json").write_text("[" * 20_000)
    with pytest.raises(HpoError, match="is damaged: nested too deeply"):
        load_policy(tmp_path)


def test_valid_json_is_parsed():
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
