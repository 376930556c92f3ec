"""Bundles taken apart and packed again, with checksums that are right or that are not."""

import json
import random
import re
import zipfile
from hashlib import sha256

from hpo.cli import main
from hpo.views.bundle import container


def trap(path):
    """Code that leaves a file where it runs."""
    return f"import pathlib\npathlib.Path({str(path)!r}).write_text('ran')\n"


def packed(members, path, honest=True):
    """Write members as a bundle, whose manifest has their hashes if it is `honest`."""
    if honest:
        manifest = json.loads(members["bundle.json"])
        sums = {n: sha256(data).hexdigest() for n, data in members.items() if n != "bundle.json"}
        text = f"{json.dumps({**manifest, 'members': sums}, indent=1)}\n".encode()
        members = {**members, "bundle.json": text}
    folder = path.with_suffix(".d")
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    container.pack({name: folder / name for name in members}, path)
    return path


def verified(path, capsys, *words):
    code = main(["verify", str(path), *words])
    return code, capsys.readouterr()


def edited(members, path, name, change):
    """A bundle whose JSON member is changed, with hashes that are right again."""
    data = json.loads(members[name])
    change(data)
    text = f"{json.dumps(data, indent=1)}\n".encode()
    return packed({**members, name: text}, path)


def tampered_bundles(members, bundle, folder):
    """Yield (what was changed, path) of 20 copies of a bundle, each tampered with in one way."""
    content = bundle.read_bytes()
    rng = random.Random(2)
    for place in [rng.randrange(len(content)) for _ in range(8)]:
        path = folder / f"byte{place}.zip"
        flipped = bytes([content[place] ^ (1 << rng.randrange(8))])
        path.write_bytes(content[:place] + flipped + content[place + 1 :])
        yield f"byte {place}", path

    def claim(about, change):
        def apply(data):
            change(next(one for one in data["claims"] if one["about"] == about))

        return apply

    def better(one):
        one["numbers"]["difference"] += 1.0

    def likelier(one):
        one["numbers"]["probability_interval"]["low"] = 0.7

    def sentence(one):
        words = one["sentences"][0]
        digit = re.search(r"\d", words)
        assert digit, words
        other = str((int(digit[0]) + 1) % 10)
        one["sentences"][0] = words[: digit.start()] + other + words[digit.end() :]

    def higher(one):
        one["numbers"]["value"] *= 1.0 + 1e-6

    def cheaper(one):
        one["numbers"]["trained"] -= 1

    def verdict(data):
        data["conclusion"]["against"]["verdict"] = "worse"

    def other_trial(data):
        data["trial"] = data["trial"] + 1

    for what, change in {
        "difference": claim("verdict", better),
        "probability": claim("verdict", likelier),
        "sentence": claim("verdict", sentence),
        "value": claim("value", higher),
        "value's sentence": claim("value", sentence),
        "cost": claim("cost", cheaper),
        "conclusion": verdict,
        "trial": other_trial,
    }.items():
        path = folder / f"{what.replace(' ', '_')}.zip"
        yield what, edited(members, path, "claims.json", change)
    without = {name: data for name, data in members.items() if name != "report.html"}
    yield "no report", packed(without, folder / "no_report.zip")
    yield "more", packed({**members, "more.txt": b"x"}, folder / "more.zip")
    study = members["study.resolved.yaml"]
    other = re.sub(rb"(?m)^env_steps: (\d+)", lambda steps: b"env_steps: 1" + steps[1], study)
    assert other != study
    yield "study", packed({**members, "study.resolved.yaml": other}, folder / "study.zip")
    again = folder / "again.zip"
    with zipfile.ZipFile(again, "w") as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    yield "packed again", again
