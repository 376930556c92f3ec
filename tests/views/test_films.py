"""`hpo eval --video`: files of pictures."""

import errno
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from hpo.cli import main
from hpo.errors import ConfigError, MissingExtraError, StoreError
from hpo.views import pictures as films

Image = pytest.importorskip("PIL.Image")


def pictures(count, height=10, width=14):
    for number in range(count):
        yield np.full((height, width, 3), 20 * number, np.uint8)


def test_gif_contains_all_frames_at_the_given_rate(tmp_path):
    path = tmp_path / "film.gif"
    assert films.write_film(str(path), 20.0, pictures(5)) == 5
    with Image.open(path) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (5, (14, 10), 50)
        film.seek(4)
        assert film.convert("RGB").getpixel((3, 3)) == (80, 80, 80)
    assert [file.name for file in tmp_path.iterdir()] == ["film.gif"]


def test_fast_gif_drops_frames(tmp_path):
    path = tmp_path / "film.gif"
    assert films.write_film(str(path), 125.0, pictures(7)) == 7
    with Image.open(path) as film:
        assert film.n_frames == 3  # of 0, 3, 6
        assert film.info["duration"] == 20  # 24 ms, in hundredths of a second


def test_mp4_frames_have_even_size_and_the_given_rate(tmp_path, monkeypatch):
    seen = []

    def write_frames(path, size, **options):
        path.write_bytes(b"film")
        seen.append((size, options["fps"]))
        while True:
            picture = yield
            if picture is None:
                return
            seen.append(picture)

    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", SimpleNamespace(write_frames=write_frames))
    path = tmp_path / "film.mp4"
    assert films.write_film(str(path), 30.0, pictures(3, height=9, width=13)) == 3
    assert seen[0] == ((14, 10), 30.0)
    assert [picture.shape for picture in seen[1:]] == [(10, 14, 3)] * 3
    assert [int(picture.max()) for picture in seen[1:]] == [0, 20, 40]
    assert path.read_bytes() == b"film"


def test_failed_film_leaves_no_file(tmp_path):
    def failing(after):
        yield from pictures(after)
        raise ConfigError("no more")

    for after in (0, 2):
        with pytest.raises(ConfigError, match="no more"):
            films.write_film(str(tmp_path / "film.gif"), 20.0, failing(after))
    assert not list(tmp_path.iterdir())


def test_disk_errors_while_filming_are_reported(tmp_path, monkeypatch):
    def full(self, *args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    def broken(path, size, **options):  # as imageio-ffmpeg tells it, without a number
        path.write_bytes(b"half")
        yield
        raise OSError("[Errno 32] Broken pipe\n\nFFMPEG COMMAND:\n...")

    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", SimpleNamespace(write_frames=broken))
    monkeypatch.setattr(Image.Image, "save", full)
    for name, words in (("f.gif", "No space left on device"), ("f.mp4", "Broken pipe")):
        with pytest.raises(StoreError, match=rf"{words} while writing .*{name}"):
            films.write_film(str(tmp_path / name), 20.0, pictures(3))
    assert not list(tmp_path.iterdir())


def test_film_path_may_be_a_symlink(tmp_path):
    link = tmp_path / "link.gif"
    (tmp_path / "there").mkdir()
    link.symlink_to("there/film.gif")
    films.write_film(str(link), 20.0, pictures(2))
    with Image.open(tmp_path / "there" / "film.gif") as film:
        assert link.is_symlink() and film.n_frames == 2


def test_check_film_reports_bad_names_and_missing_packages(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"its name must end in .gif or .mp4"):
        films.check_film("film.avi")
    with pytest.raises(ConfigError, match=r"its folder .*none"):
        films.check_film(str(tmp_path / "none" / "film.gif"))
    films.check_film("film.GIF")
    monkeypatch.setattr(films.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"'imageio-ffmpeg'.*pip install .*\[video\]"):
        films.check_film("film.mp4")


@pytest.mark.usefixtures("quickly")
def test_video_of_optical_networks_is_refused(tmp_path, capsys):
    env, film = tmp_path / "env.json", tmp_path / "net.gif"
    env.write_text(json.dumps({"id": "rmsa", "topology": "ring4", "k": 2, "slots": 10}))
    given = ["eval", "--env", str(env), "--heuristic", "ksp_ff", "--video", str(film)]
    for more, words in (
        (["--trace", "x.csv"], "--video and --trace cannot be combined"),
        ([], "--video does not apply to optical networks"),
    ):
        assert main([*given, *more]) == 2
        assert words in capsys.readouterr().err
