"""Bundles taken apart and packed again, with checksums that are right or that are not."""

import json
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
